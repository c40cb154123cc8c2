"""Generators of untrusted input: hostile folders of models, bad data files, bad recipes; all made by a seed.

The fast tests (``test_hostile.py``) use a few seeds of each; a long run uses many:

    make_good_folders(root / "good")                                     # once, a second
    for seed in range(200):                                              # all attacks in turn, each time in another way
        folder = make_hostile_folder(root / "good", root / f"{seed}" / "model", seed)
        folder.refusal()                                                 # the message; else an AssertionError

    for seed in range(10_000):                                           # all formats in turn
        found = make_bad_data(root / f"data-{seed}", seed).read(store)   # rows read, or the message

    good = load_good_recipes(str(encoder_folder), root / "files")        # once
    for seed in range(10_000):                                           # all kinds of stages in turn
        message = make_bad_recipe(good, root / "recipe.toml", seed).check(store)    # empty where check accepts it

Anything else than a result or a message is an error and propagates: that is the fault to look for. Every attack and
every file is made in the folder that is named, and nothing outside may change: compare :func:`list_files` before and
after. Hostile code would write a file called ``MARKER`` into the working folder. A seed makes the same folder or file
every time; about three bad data files of a second make it a minute for 10,000. Set ``HF_HUB_OFFLINE=1``: some recipes
name encoders and data sets of the hub by accident.
"""

from __future__ import annotations

from pathlib import Path

from hostile_files import BadData, BadRecipe, load_good_recipes, make_bad_data, make_bad_recipe
from hostile_folders import ATTACKS, MARKER, HostileFolder, make_good_folders, make_hostile_folder

__all__ = [
    "ATTACKS",
    "MARKER",
    "BadData",
    "BadRecipe",
    "HostileFolder",
    "list_files",
    "load_good_recipes",
    "make_bad_data",
    "make_bad_recipe",
    "make_good_folders",
    "make_hostile_folder",
]


def list_files(folder: Path) -> dict[str, tuple[int, int]]:
    """All files below a folder, with size and time of the last change: equal where nothing was written."""
    facts = {str(path): path.lstat() for path in sorted(folder.rglob("*"))}
    return {name: (found.st_size, found.st_mtime_ns) for name, found in facts.items()}
