"""So that ``python -m crossling`` and ``accelerate launch -m crossling`` work."""

from crossling.cli.entry import main

if __name__ == "__main__":
    main()
