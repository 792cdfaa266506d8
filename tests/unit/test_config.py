"""Configuration: precedence, origins, refusals."""

import re
from pathlib import Path
from typing import get_args

import pytest

from aaco.cli import options
from aaco.core import config
from aaco.core.errors import UsageError
from aaco.steps import run


@pytest.fixture(autouse=True)
def empty_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))


def write(text):
    Path("aaco.yaml").write_text(text)


def test_defaults_know_that_they_are_defaults():
    settings = config.resolve(environment={})
    assert settings.config.storage.sessions_dir == Path("sessions")
    assert set(settings.origins.values()) == {"default"}


def test_command_line_beats_environment_beats_preset_beats_file():
    write("storage: {sessions_dir: from-file, max_sessions: 7}\nprofiling: {warmup: 1, iterations: 2}")
    environment = {"AACO_SESSION_DIR": "from-environment"}
    settings = config.resolve(preset="quick", overrides={"profiling": {"iterations": 9}}, environment=environment)
    assert str(settings.config.storage.sessions_dir) == "from-environment"
    assert settings.config.storage.max_sessions == 7
    assert (settings.config.profiling.warmup, settings.config.profiling.iterations) == (5, 9)
    assert settings.origins["storage.sessions_dir"] == "environment AACO_SESSION_DIR"
    assert settings.origins["storage.max_sessions"] == "file aaco.yaml"
    assert settings.origins["profiling.warmup"] == "preset quick"
    assert settings.origins["profiling.iterations"] == "command line"


def test_the_named_file_is_used_instead_of_the_searched_ones(tmp_path):
    write("storage: {max_sessions: 1}")
    other = tmp_path / "other.yaml"
    other.write_text("storage: {max_sessions: 2}")
    environment = {"AACO_CONFIG": str(other)}
    assert config.resolve(environment=environment).config.storage.max_sessions == 2
    assert config.resolve(file=Path("aaco.yaml"), environment=environment).config.storage.max_sessions == 1


@pytest.mark.parametrize(("text", "said"), [
    ("storage: {sesions_dir: x}", "did you mean 'sessions_dir'"),
    ("storge: {}", "did you mean 'storage'"),
    ("profiling: {iterations: 0}", "profiling.iterations"),
    ("profiling: {iterations: many}", "try: profiling.iterations: measured iterations"),
    ("analysis: {pressure_io_pct: [1, x]}", "try: analysis.pressure_io_pct: time in which some task waited for I/O"),
    ("- a list", "sections"),
    ("storage: 3", "sections"),
    ("a: [unclosed", "not valid YAML"),
    ("!!python/object/apply:os.system ['true']", "not valid YAML"),
])
def test_what_is_not_known_is_refused_with_file_and_key(text, said):
    """Mutation: ask of a bad value whether its own key was meant."""
    write(text)
    with pytest.raises(UsageError) as caught:
        config.resolve(environment={})
    assert said in str(caught.value)
    assert "aaco.yaml" in str(caught.value)


def test_a_missing_named_file_is_a_usage_error():
    with pytest.raises(UsageError, match=r"nowhere\.yaml"):
        config.resolve(file=Path("nowhere.yaml"), environment={})


def test_variables_that_nothing_reads_are_known_as_such():
    """Mutation: an unknown one passed over; the likeness of names with what all begin with."""
    assert config.unread({"AACO_SESSION_DIR": "x", "AACO_OUTPUT_DIR": "x", "AACO_CACH_DIR": "x", "AACO_API_KEY": "x",
                          "HOME": "x"}) == {"AACO_API_KEY": "", "AACO_CACH_DIR": "AACO_CACHE_DIR",
                                            "AACO_OUTPUT_DIR": "AACO_SESSION_DIR"}


def test_every_variable_that_the_program_reads_is_known():
    sources = Path(config.__file__).parents[1].rglob("*.py")
    named = {name for source in sources for name in re.findall(r"\b_?(AACO_[A-Z_]+[A-Z])\b", source.read_text())}
    assert named == {*config.VARIABLES, *config.OTHERWISE}


def test_the_laboratory_is_a_setting_with_the_levels_that_there_are():
    settings = config.resolve(environment={"AACO_LAB_MODE": "basic"})
    assert settings.config.profiling.lab == "basic"
    assert settings.origins["profiling.lab"] == "environment AACO_LAB_MODE"
    assert set(get_args(config.Laboratory)) == set(options.LEVELS)
    with pytest.raises(UsageError, match="AACO_LAB_MODE"):
        config.resolve(environment={"AACO_LAB_MODE": "silent"})
    plan = run.complete_plan(settings, "m", {"lab": None})
    assert plan.lab == "basic" and run.complete_plan(settings, "m", {"lab": "none"}).lab == "none"
