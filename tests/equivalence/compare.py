"""Compare what the code at hand gives with a record, or with the code of another revision on the same machine.

    python tests/equivalence/compare.py                     # with reference.json
    python tests/equivalence/compare.py --against REV       # with a revision, whose own cases are run with its code

The exit code is 1 where anything differs.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cases import IGNORED_COLUMNS, RENAMED_COLUMNS, RENAMED_FILES, RENAMED_TENSORS
from record import REFERENCE, ROOT, Record, digest_texts, read_record, record, summarise, write_record

SHOWN = 6
"""Names that a difference lists."""


def rename(name: str, renamed: Mapping[str, str]) -> str:
    """A reference's name as it is now."""
    for pattern, replacement in renamed.items():
        name = re.sub(pattern, replacement, name)
    return name


def compare_tensors(before: Record, names: Sequence[str], after: Mapping[str, str]) -> list[str]:
    """What differs between the weights of a stage."""
    then = {
        rename(name, RENAMED_TENSORS): digest for name, digest in zip(names, before["tensors"].split(), strict=True)
    }
    now = {name: digest[:12] for name, digest in after.items()}
    problems = _compare_names(then, now, "tensor")
    changed = [name for name in then if name in now and then[name] != now[name]]
    if changed:
        problems.append(f"{len(changed)} of {len(then)} tensors differ: {_list_some(changed)}")
    whole = digest_texts(f"{key} {value}" for key, value in after.items())
    if not problems and not RENAMED_TENSORS and whole != before["digest"]:
        problems.append("the digest of all tensors differs")
    return problems


def compare_predictions(before: Record, after: Record) -> list[str]:
    """What differs between two files of predictions."""
    then = {RENAMED_COLUMNS.get(name, name): digest for name, digest in before["columns"].items()}
    then = {name: digest for name, digest in then.items() if name not in IGNORED_COLUMNS}
    now = {name: digest for name, digest in after["columns"].items() if name not in IGNORED_COLUMNS}
    problems = _compare_names(then, now, "column")
    if before["rows"] != after["rows"]:
        problems.append(f"{after['rows']} rows, not {before['rows']}")
    changed = [name for name in then if name in now and then[name] != now[name]]
    return [*problems, *([f"columns differ: {_list_some(changed)}"] if changed else [])]


def compare_tables(before: Record, after: Record) -> list[str]:
    """What differs between two tables, whatever the order of rows and columns; columns may be added."""
    columns = [RENAMED_COLUMNS.get(name, name) for name in before["columns"]]
    missing = [name for name in columns if name not in after["columns"] and name not in IGNORED_COLUMNS]
    if missing:
        return [f"columns missing: {_list_some(missing)}"]
    if "rows" not in before:
        places = [after["columns"].index(name) for name in columns if name in after["columns"]]
        now = summarise(columns, [[row[place] for place in places] for row in after["rows"]])
        if before["digest"] == now["digest"]:
            return []
        pairs = zip(columns, before["by_column"], now["by_column"], strict=True)
        changed = [name for name, one, other in pairs if one != other]
        return [f"{now['count']} rows ({before['count']} before); columns differ: {_list_some(changed) or 'together'}"]
    kept = [name for name in columns if name not in IGNORED_COLUMNS]
    then = _project(before["rows"], [columns.index(name) for name in kept])
    rows = _project(after["rows"], [after["columns"].index(name) for name in kept])
    if then == rows:
        return []
    changed = [
        name for index, name in enumerate(kept) if sorted(r[index] for r in then) != sorted(r[index] for r in rows)
    ]
    first = next((f"{one} / {other}" for one, other in zip(then, rows, strict=False) if one != other), "")
    return [
        f"{len(rows)} rows ({len(then)} before); columns differ: {_list_some(changed) or 'together'}; first: {first}"
    ]


def _project(rows: Sequence[Sequence[str]], places: Sequence[int]) -> list[list[str]]:
    return sorted([row[place] for place in places] for row in rows)


def _compare_names(then: Mapping[str, Any], now: Mapping[str, Any], what: str) -> list[str]:
    missing, new = [name for name in then if name not in now], [name for name in now if name not in then]
    lists = ((missing, "missing"), (new, "new"))
    return [f"{len(names)} {what}s {word}: {_list_some(names)}" for names, word in lists if names]


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def compare_case(before: Record, after: Record, names: Sequence[Sequence[str]]) -> list[str]:
    """What differs in a case; nothing: all is equal."""
    if "error" in before or "error" in after:
        return [f"failed: {side.get('error', 'not here')[-600:]}" for side in (before, after) if "error" in side]
    problems: list[str] = []
    for part in ("weights", "predictions", "tables"):
        then = {rename(name, RENAMED_FILES): value for name, value in before.get(part, {}).items()}
        now = after.get(part, {})
        problems += [f"{part}: {problem}" for problem in _compare_names(then, now, "part")]
        for name in [name for name in then if name in now]:
            if part == "weights":
                found = compare_tensors(then[name], names[then[name]["names"]], now[name])
            elif part == "predictions":
                found = compare_predictions(then[name], now[name])
            else:
                found = compare_tables(then[name], now[name])
            problems += [f"{part}, {name}: {problem}" for problem in found]
    return problems


def compare_records(before: Record, after: Record, *, part: bool = False) -> bool:
    """Print equal or different for each case; whether all are equal. ``part``: not all cases were run."""
    equal = True
    for name in dict.fromkeys([*before["cases"], *after["cases"]]):
        if name not in after["cases"]:
            if part:
                continue
            problems = ["not run with the present code"]
        elif name not in before["cases"]:
            problems = ["not in the reference"]
        else:
            problems = compare_case(before["cases"][name], after["cases"][name], before["names"])
        print(f"{'DIFFERENT' if problems else 'equal    '}  {name}")
        for problem in problems:
            print(f"           {problem}")
        equal = equal and not problems
    return equal


def record_revision(revision: str, options: argparse.Namespace) -> Record:
    """The record of a revision: its own cases with its own code, in a temporary worktree."""
    with tempfile.TemporaryDirectory(prefix="equivalence-") as name:
        tree, out = Path(name).resolve() / "tree", Path(name).resolve() / "record.json"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), revision], check=True)
        try:
            script = tree / "tests" / "equivalence" / "record.py"
            if not script.is_file():
                print(f"{revision} has no cases of its own: its code runs with the present ones")
                script = Path(__file__).with_name("record.py")
            only = [word for pattern in options.only for word in ("--only", pattern)]
            words = ["--out", str(out), "--code", str(tree), "--full", "--jobs", str(options.jobs), *only]
            subprocess.run([sys.executable, str(script), *words], check=False)
            return read_record(out)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=False)


def compare_with(options: argparse.Namespace) -> int:
    """Compare the code at hand as the command line says."""
    if options.against:
        print(f"with the code of {options.against}:", flush=True)
        before = record_revision(options.against, options)
    else:
        before = read_record(options.out)
    print(f"with the code in {options.code}:", flush=True)
    after = record(options.code, only=options.only, jobs=options.jobs)
    if options.save:
        write_record(after, options.save)
    print()
    equal = compare_records(before, after, part=bool(options.only))
    keys = [key for key in before["machine"] if before["machine"][key] != after["machine"].get(key)]
    for key in keys:
        print(f"this machine differs: {key} is {after['machine'].get(key)}, was {before['machine'][key]}")
    if keys:
        print("Last bits may differ for that reason alone: compare with --against REV, which runs both here.")
    print(f"{'all equal' if equal else 'there are differences'}: {len(after['cases'])} cases, {after['seconds']} s")
    return 0 if equal else 1


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=REFERENCE, metavar="FILE", help="the record to compare with")
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout whose code runs; default: this one")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="cases, such as 'tiny/*'")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time; each has one thread")
    parser.add_argument("--save", type=Path, help="write the record of the code at hand, too")
    parser.add_argument("--against", metavar="REV", help="compare with the code of a git revision, on this machine")
    return compare_with(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
