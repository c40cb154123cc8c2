"""Shared fixtures; the helpers beside this file (``tiny``, ``hub``) are imported by name."""

from __future__ import annotations

import copy
import gc
import os
import random
import shutil
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Before torch is imported: threads of tiny models in several test processes only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Likewise those by which transformers reads tensors of a few bytes.
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")

# Examples are the same in every run, and how fast they are made on a busy machine is no reason to fail.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

GARBAGE = 20_000
"""New objects after which garbage is collected: Python's 700 are few for a process of libraries this large."""
REMEMBERED = 16
"""Encoders that tests loaded last."""
gc.disable()  # until all is imported and collected, which is no garbage


def pytest_collection_finish() -> None:
    """What was imported and collected lives to the end: it is never looked through for garbage."""
    _remember_phrasebook()
    _remember_commands()
    if "torch" in sys.modules:
        _draw_no_meta_weights()
        _remember_encoders()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Garbage whose deletion fails is found by one collection; pytest makes ten at the end, of a second each."""
    gc.collect()
    gc.freeze()


def pytest_sessionstart() -> None:
    """A process that runs a part of all tests will need the server of prepared processes, before which it imports less.

    One that runs a few tests starts it when it is needed.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        from prepared import start_server

        start_server()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Before the first test, a server of processes that have imported everything is a fork of this one."""
    if "faults" in sys.modules and not session.config.option.collectonly:
        from faults import start_fork_server

        start_fork_server()


def _remember_phrasebook() -> None:
    """Every test has a store of its own, for which the same rows of the embedded corpus would be generated again.

    Only as data sets: what tests of the corpus generate is generated.
    """
    from crossling.data.readers import phrasebook
    from crossling.data.readers.text_files import BadRows

    generate = phrasebook.read

    @cache
    def recall(settings: phrasebook.Settings) -> list[Any]:
        return list(generate(settings, BadRows()))

    def read(settings: phrasebook.Settings, bad: BadRows) -> Iterator[Any]:
        yield from recall(settings) if settings.rows is None else generate(settings, bad)

    phrasebook.read = read


def _remember_commands() -> None:
    """What a process does once, typer would do for every command that a test calls: inspect all of their functions."""
    import typer.main
    import typer.testing

    typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]


def _draw_no_meta_weights() -> None:
    """Weights on the device ``meta``, where transformers builds a model before it loads it, have no values to draw.

    That torch goes through the motions in Python is a fifth of the time that a tiny encoder takes to load.
    """
    from torch import nn

    for kind in (nn.Linear, nn.Embedding, nn.LayerNorm):

        def reset(self: Any, draw: Callable[[Any], None] = kind.reset_parameters) -> None:
            if self.weight is None or not self.weight.is_meta:
                draw(self)

        kind.reset_parameters = reset  # type: ignore[method-assign]


def _remember_encoders() -> None:
    """Many tests load the encoder of one folder: a copy of what was loaded is the same while its files are the same."""
    from crossling.encoders import loading

    load = loading.load_folder
    loaded: OrderedDict[Any, Any] = OrderedDict()

    def load_folder(folder: Path, **how: Any) -> Any:
        try:
            stats = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
        except OSError:
            return load(folder, **how)
        files = tuple((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in stats)
        key = (folder, files, tuple(sorted(how.items())))
        if key in loaded:
            loaded.move_to_end(key)
            return copy.deepcopy(loaded[key])
        encoder = load(folder, **how)
        loaded[key] = copy.deepcopy(encoder)
        if len(loaded) > REMEMBERED:
            loaded.popitem(last=False)
        return encoder

    loading.load_folder = load_folder


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """What is drawn for a fixture that tests share does not depend on which of them is the first."""
    if fixturedef.scope != "function":
        _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """What is drawn in a test does not depend on the tests before it."""
    _seed()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of a GPU are skipped where there is none."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


def _seed() -> None:
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        # torch.manual_seed would format the call stack of every test for every kind of device that is not there.
        (torch if _has_gpu() else torch.default_generator).manual_seed(0)


@cache
def _has_gpu() -> bool:
    """Whether tests may draw on another device than the processor."""
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


@pytest.fixture(autouse=True)
def _no_store_left_behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has a store of its own; most need no folder, which would be made and deleted for each of them."""
    if "tmp_path" in request.fixturenames:
        monkeypatch.setenv("CROSSLING_STORE", str(request.getfixturevalue("tmp_path") / "store"))
        yield
        return
    store = request.getfixturevalue("tmp_path_factory").getbasetemp() / "store"
    monkeypatch.setenv("CROSSLING_STORE", str(store))
    yield
    shutil.rmtree(store, ignore_errors=True)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """A run in this process sets the threads that torch uses, which the tests after it would have, too."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny XLM-R-like encoder on disk."""
    from tiny import save_tiny

    return save_tiny(tmp_path_factory.mktemp("encoder") / "tiny", family="xlm-r")


@pytest.fixture(scope="session")
def flat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one layer, for tests of what is done with an encoder, however deep it is."""
    from tiny import save_tiny

    return save_tiny(tmp_path_factory.mktemp("encoder") / "tiny", family="xlm-r", layers=1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of tiny trained models by task, each trained when first asked for."""
    from trained import save_trained

    @cache
    def get(task: str) -> Path:
        return save_trained(tmp_path_factory.mktemp("model") / task, task)

    return get


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of studies need not import everything again; some tests have them as a study starts them."""
    from crossling.study import local
    from faults import get_fork_server
    from small_study import serve_below_fork_server

    monkeypatch.setattr(local, "multiprocessing", SimpleNamespace(get_context=lambda _: get_fork_server()))
    monkeypatch.setattr(local, "serve_jobs", serve_below_fork_server)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public data sets; tests that need it are skipped where it is not named."""
    folder = os.environ.get("CROSSLING_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("CROSSLING_DATA does not name a folder of data sets")
    return Path(folder)
