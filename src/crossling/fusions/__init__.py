"""Ways to turn layers into the representation that a head reads, one file each."""
