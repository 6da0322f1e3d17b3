"""The page in a real browser: Debian's Chromium, without a screen. Run by `make test-page`.

Most tests write the files of runs themselves, as a training writes them, so that every step of it can be waited for;
some watch a training."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from some_pages import add_rows, row, served, write_run, write_status
from some_runs import start, trained

from gossamer.page.document import page
from gossamer.page.folder import Folder
from gossamer.page.server import PageServer
from gossamer.page.stream import everything
from gossamer.storage.lock import held

selenium = pytest.importorskip("selenium", reason="selenium is not installed (the extra `browser`)")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.page,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium and its driver are not installed"),
]
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = 60.0  # seconds: the machine may be busy
HOSTS = [{"name": name, "address": "", "up": True, "workers": [f"learn[{i}]"]} for i, name in enumerate(("h0", "h1"))]
MEMBERS = [{"name": f"learn[{i}]", "rank": i, "learns": True, "up": True, "mean_return": 0.5} for i in range(2)]
EDGES = [{"from": 0, "to": 1, "messages": 9, "staleness": 1.5}, {"from": 1, "to": 0, "messages": 8, "staleness": 6.0}]
UNNAMED = "(e) => !(e.innerText || e.ariaLabel || e.alt || e.labels?.length)"  # for a screen reader
TRAFFIC = {"staleness": {"1": 9, "6": 8}, "ages": {"2": 17}, "edges": EDGES}


class Browser:
    """One tab."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))

    def open(self, address: str, width: int = 1280) -> None:
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.get("about:blank")
        self.driver.get(address)

    def js(self, script: str) -> Any:
        return self.driver.execute_script(f"return {script}")

    def text(self, selector: str = "body") -> str:
        """What can be read there; read at once, as the page may replace elements meanwhile."""
        found: str = self.js(f"[...document.querySelectorAll({selector!r})].map((e) => e.innerText).join('\\n')")
        return found

    def wait(self, there: Callable[[], Any], what: str = "") -> None:
        """Until something is there; fails after a while with what is there instead."""
        deadline = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < deadline, f"{what}: {self.text()}"
            time.sleep(0.05)

    def shows(self, text: str, selector: str = "body") -> None:
        self.wait(lambda: text in self.text(selector), text)

    def press(self, key: str) -> None:
        self.driver.switch_to.active_element.send_keys(key)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(shared: Browser) -> Iterator[Browser]:
    shared.errors()  # those of the test before
    yield shared
    shared.driver.get("about:blank")


def at(server: PageServer, fragment: str = "") -> str:
    return server.access.address + fragment


def test_a_run_appears_and_moves(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as server:
        browser.open(at(server))
        browser.shows("No runs here yet")
        write_run(tmp_path / "first", 3)
        write_run(tmp_path / "second", 3)
        browser.shows("second", ".runs")
        assert "0.03" in browser.text(".runs")  # the mean return at step 30
        browser.wait(lambda: browser.js("document.querySelectorAll('.chart canvas').length") >= 2, "charts")
        add_rows(tmp_path / "second", 40, 500)
        browser.shows("500 of 1k", "tr[data-run=second]")
        browser.shows("second 0.5", ".chart .keys")
        write_status(tmp_path / "second", row=row(777))  # newer than any row of metrics
        browser.shows("777 of 1k", "tr[data-run=second]")
        assert browser.errors() == []


TRAIN = ("--env", "catch", "--num-envs", 2, "--rollout-length", 5, "--threads", 1, "--run-dir")


@contextmanager
def training(architecture: str, directory: Path, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`gossamer train` in a process of its own, which is killed if it has not ended."""
    with start("train", architecture, *TRAIN, directory, *words) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


def test_a_training_is_watched_from_its_start_to_its_end(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as server:
        browser.open(at(server))
        browser.shows("No runs here yet")
        with training("gala", tmp_path / "run", "--learners", "2", "--steps", "10000000") as process:
            browser.shows("running", ".chip")  # of the only run, which is opened
            browser.wait(lambda: browser.js("rowsOf('run')?.steps?.length ?? 0") > 2, "rows")
            before = browser.text(".tile b")
            browser.wait(lambda: browser.text(".tile b") != before, "it moves")
            assert "nothing recorded" not in browser.text("#panel")
            browser.driver.find_element(By.ID, "tab-gossip").click()
            browser.wait(lambda: browser.js("document.querySelectorAll('svg.graph .edge').length") == 2, "two edges")
            process.terminate()
            browser.shows("interrupted", ".chip")
        (steps,) = browser.js("rowsOf('run').steps.slice(-1)")
        assert steps == json.loads((tmp_path / "run" / "result.json").read_text())["steps"]
        assert browser.errors() == []


def processes_below(parent: int) -> Iterator[tuple[int, str]]:
    """Every process that this one has started, directly or not: its number, and its command line."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(OSError):
            yield int(child), Path(f"/proc/{child}/cmdline").read_text()
            yield from processes_below(int(child))


def test_a_host_of_a_training_that_is_killed_is_away_until_it_comes_back(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    words = ("--hosts", "2", "--learners", "1", "--steps", "10000000", "--cluster", "local")
    with served(tmp_path) as server, training("pala", tmp_path / "run", *words) as process:
        browser.open(at(server, "#/run/run/hosts"))
        browser.wait(lambda: browser.js("document.querySelectorAll('.host .chip.up').length") == 2, "two are up")
        hosts = [number for number, line in processes_below(process.pid) if line.startswith("ray::HostProcess")]
        assert len(hosts) == 2
        os.kill(hosts[0], signal.SIGKILL)
        browser.wait(lambda: browser.js("document.querySelectorAll('.host.away').length") == 1, "one is away")
        browser.wait(lambda: browser.js("document.querySelectorAll('.host .chip.up').length") == 2, "both are up")
        assert "until now" not in browser.text("#panel")
        assert browser.errors() == []


def test_runs_of_several_environments_have_them_in_their_labels(browser: Browser, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_run(tmp_path / name, 3)
    text = (tmp_path / "second" / "config.json").read_text()
    write_run(tmp_path / "third", 3)
    with served(tmp_path) as server:
        browser.open(at(server))
        browser.shows("first", ".keys")
        assert "(catch)" not in browser.text(".keys")
        (tmp_path / "second" / "config.json").write_text(text.replace('"catch"', '"recall"'))
        browser.wait(lambda: "first" not in browser.text(".keys"), "second alone: it is the newest")
        browser.driver.find_element(By.ID, "tick first").send_keys(Keys.SPACE)
        browser.shows("second (recall)", ".keys")
        browser.shows("first (catch)", ".keys")
        (tmp_path / "third" / "config.json").write_text("{")
        browser.shows("damaged", "tr[data-run=third] .chip")
    assert browser.errors() == []


def test_runs_that_are_ticked_are_laid_over_each_other(browser: Browser, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, 20)
    with served(tmp_path) as server:
        browser.open(at(server))
        browser.shows("b 0.2", ".chart .keys")
        browser.driver.find_element(By.ID, "tick a").send_keys(Keys.SPACE)
        browser.wait(lambda: "a 0.2" not in browser.text(".chart .keys"), "only b")
        assert browser.js("document.activeElement.id") == "tick a"  # the focus stays while the table is redrawn
        browser.driver.find_element(By.ID, "tick a").send_keys(Keys.SPACE)
        browser.shows("a 0.2", ".chart .keys")


def test_runs_are_sorted_and_found(browser: Browser, tmp_path: Path) -> None:
    for name, rows in (("a", 20), ("b", 30), ("c", 10)):
        write_run(tmp_path / name, rows)
    keys = "[...document.querySelectorAll('.runs tbody tr')].map((row) => row.dataset.run).join('')"
    with served(tmp_path) as server:
        browser.open(at(server))
        browser.wait(lambda: len(browser.js(keys)) == 3, "three runs")
        head = browser.driver.find_element(By.CSS_SELECTOR, "[data-by='mean return'] button")
        for wanted in ("bac", "cab"):
            head.send_keys(Keys.ENTER)
            browser.wait(lambda wanted=wanted: browser.js(keys) == wanted, wanted)
        browser.driver.find_element(By.ID, "find").send_keys("c cat")
        browser.wait(lambda: "a" not in browser.js(keys) or browser.js(keys) == "cab", "those with both words")
        browser.driver.find_element(By.ID, "find").send_keys("x")
        browser.shows("No run has these words")
        assert browser.errors() == []


def test_a_host_dies_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    status = {"members": MEMBERS, "hosts": HOSTS, "absences": [], "traffic": TRAFFIC}
    run = write_run(tmp_path / "run", 5, **status)
    add_rows(run, 60, 60, **{"gossip/distance": 0.1, "gossip/bound": 0.4, "gossip/mixed": 3})
    with served(tmp_path) as server, held(run):
        browser.open(at(server, "#/run/run/hosts"))
        browser.wait(lambda: browser.js("document.querySelectorAll('.host .chip.up').length") == 2, "two are up")
        down = [HOSTS[0], {**HOSTS[1], "up": False}]
        away = [MEMBERS[0], {**MEMBERS[1], "up": False}]
        absence = {"host": "h1", "at_seconds": 5.0, "away_seconds": None}
        write_status(run, **{**status, "hosts": down, "members": away, "absences": [absence]})
        browser.wait(lambda: browser.js("document.querySelectorAll('.host.away').length") == 1, "one is away")
        assert "until now" in browser.text("#panel")
        browser.shows("1 of 2 hosts away", ".tiles")
        browser.driver.find_element(By.ID, "tab-gossip").click()
        browser.wait(lambda: browser.js("document.querySelectorAll('svg.graph .away').length") == 1, "on the graph")
        write_status(run, **{**status, "absences": [{**absence, "away_seconds": 4.0}]})
        browser.wait(lambda: browser.js("document.querySelectorAll('svg.graph .away').length") == 0, "it is back")
        assert browser.errors() == []


def test_nothing_of_a_crashed_run_is_up(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 5, members=MEMBERS, hosts=HOSTS, absences=[], traffic=TRAFFIC)
    with served(tmp_path) as server:
        with held(run):
            browser.open(at(server, "#/run/run/hosts"))
            browser.wait(lambda: browser.js("document.querySelectorAll('.chip.up').length") == 4, "all are up")
            browser.shows("all present", ".tiles")
        browser.wait(lambda: browser.js("document.querySelectorAll('.chip.up').length") == 0, "none is up")
        assert "all present" not in browser.text(".tiles")
        assert browser.errors() == []


def test_the_gossip_graph_has_its_staleness_on_the_edges(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 5, members=MEMBERS, traffic=TRAFFIC)
    add_rows(run, 60, 60, **{"gossip/distance": 0.1, "gossip/bound": 0.4, "gossip/mixed": 3})
    with served(tmp_path) as server:
        browser.open(at(server, "#/run/run/gossip"))
        browser.wait(lambda: browser.js("document.querySelectorAll('svg.graph .edge').length") == 2, "two edges")
        labels = browser.js("[...document.querySelectorAll('svg.graph text')].map((e) => e.textContent)")
        assert sorted(labels) == ["0", "1", "1.5", "6.0"]
        browser.shows("bound 0.4", ".chart .keys")
        browser.driver.find_element(By.ID, "tab-values").click()
        browser.shows("17 in all", "#panel")  # messages, by their age


def test_speeds_are_those_of_the_metrics(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3)  # 10, 20, 30 steps at 1, 2, 3 s, all learned, an update for each 5
    shares = {"time/env": 0.2, "time/update": 0.05, "time/other": 0.75}
    add_rows(run, 60, 60, learned=45, reused=15, updates=24, steps_per_second=37.0, **shares)  # at 6 s
    with served(tmp_path) as server:
        browser.open(at(server, "#/run/run/speed"))
        browser.shows("steps per second\n10\n40 frames/s", ".tile")  # 60 steps in 6 s, 4 frames a step
        browser.shows("4.4", "#panel .keys")
        # since the first row, in 5 s: 50 steps, 35 learned, 15 reused, 22 updates
        keys = ["acted 10", "learned 7", "reused 3", "env 0.2", "update 0.05", "other 0.75", "4.4"]
        assert browser.text("#panel .keys").split("\n") == keys
        alone = "env\n20 %\n50\nupdate\n5.0 %\n200\nother\n75 %\n–"  # 10 / 0.2, 10 / 0.05
        browser.shows(alone, "#panel td")


def test_each_of_several_games_has_its_episodes_and_evaluations(browser: Browser, tmp_path: Path) -> None:
    run, games = write_run(tmp_path / "run", 0), ["pong", "boxing"]
    add_rows(run, 10, 50, games=games, **{"return/pong": -3.0, "return/boxing": 7.0})
    means = {"pong": {"mean_return": -1.5}, "boxing": {"mean_return": 9.5}}
    row = {"steps": 50, "seconds": 5.0, "protocol": "noop", "episodes": 4, "mean_return": 4.0, "games": means}
    (run / "evaluations.jsonl").write_text(json.dumps(row) + "\n")
    with served(tmp_path) as server:
        browser.open(at(server, "#/run/run"))
        browser.shows("mean of 100 -3", "#panel .keys")
        keys = browser.text("#panel .keys").split("\n")
        for expected in (["mean of 100 0.05", "evaluations 4"], ["mean of 100 -3", "evaluations -1.5"]):
            assert [keys[keys.index(expected[0]) + place] for place in (0, 1)] == expected
        assert keys[keys.index("mean of 100 7") :][:2] == ["mean of 100 7", "evaluations 9.5"]
        browser.open(at(server, "#/run/run/values"))
        browser.shows("Returns of the latest episodes of boxing", "#panel h3")
        browser.shows("Returns of the latest episodes of pong", "#panel h3")
        assert browser.errors() == []


def as_value(text: str, like: Any) -> Any:
    """What the page shows of a setting, as a value of this kind."""
    if isinstance(like, int | float) and not isinstance(like, bool):
        return float(text.replace(",", ""))
    return {"–": None, "true": True, "false": False}.get(text, text)


def test_settings_are_those_of_each_run(browser: Browser, tmp_path: Path) -> None:
    for name, more in {"one": {"learning_rate": 0.000248}, "two": {"learning_rate": 0.0025, "memory": "gru"}}.items():
        trained(tmp_path / name, **more)
    with served(tmp_path) as server:
        for name, rate, memory in (("one", 0.000248, "none"), ("two", 0.0025, "gru")):
            browser.open(at(server, f"#/run/{name}/settings"))
            browser.shows("Host machine", "#panel h2")
            cells = iter(browser.text("#panel td").split("\n"))
            config = json.loads((tmp_path / name / "config.json").read_text())
            groups = {group: values for group, values in config.items() if isinstance(values, dict)}
            assert browser.text("#panel h2").split("\n")[: len(groups)] == [group.capitalize() for group in groups]
            found = {
                group: {next(cells).replace(" ", "_"): as_value(next(cells), like) for like in values.values()}
                for group, values in groups.items()
            }
            assert found == groups
            assert (found["optimization"]["learning_rate"], found["network"]["memory"]) == (rate, memory)
        assert browser.errors() == []


def test_the_server_restarts(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3)
    with served(tmp_path) as server:
        browser.open(at(server, "#/run/run"))
        browser.shows("30", ".tile b")
        port = server.access.port
    browser.shows("trying again", "#link")
    add_rows(run, 40, 90)
    again = PageServer(tmp_path, "127.0.0.1", port)
    with served(tmp_path, server=again):
        browser.shows("live", "#link")
        browser.shows("90", ".tile b")
        assert browser.js("rowsOf('run').steps.length") == 9  # nothing twice


def test_a_restart_with_another_token_is_told(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3)
    with served(tmp_path, "0.0.0.0") as server:
        port = server.access.port
        browser.open(f"http://127.0.0.1:{port}/?token={server.access.token}", width=390)
        browser.shows("30", ".tile b")
    browser.shows("trying again", "#link")
    add_rows(run, 40, 90)
    with served(tmp_path, server=PageServer(tmp_path, "0.0.0.0", port)) as again:
        browser.shows("open the address that was printed, it has a new token", "#link")
        assert browser.js("document.documentElement.scrollWidth") <= 390
        browser.js(f"fetch('/?token={again.access.token}').then(() => 0)")  # as another tab does that opens the address
        browser.shows("live", "#link")
        browser.shows("90", ".tile b")


def test_a_finished_run_opens_from_disk(browser: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "run", 40, result=True)
    saved = tmp_path / "saved page.html"
    saved.write_text(page(everything(Folder(tmp_path))))
    browser.open(saved.as_uri())
    browser.shows("all steps done")
    browser.shows("saved page", "#link")
    assert browser.js("document.querySelectorAll('.chart canvas').length") >= 1
    asked = browser.js(
        "performance.getEntriesByType('resource').map((e) => e.name).filter((n) => !n.startsWith('data:'))"
    )
    assert asked == []
    assert browser.errors() == []


def test_the_agent_plays_while_somebody_watches(browser: Browser, tmp_path: Path) -> None:
    trained(tmp_path / "run")
    with served(tmp_path) as server:
        browser.open(at(server, "#/run/run/agent"))
        browser.wait(lambda: browser.js("document.querySelector('.screen')?.naturalWidth > 0"), "a screen")
        assert "trained 80 steps" in browser.text(".facts")
        assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".prob")) >= 3
        assert browser.js("document.querySelectorAll('.prob.taken').length") == 1
        before = browser.text(".facts")
        browser.wait(lambda: browser.text(".facts") != before, "it plays on")
        browser.open(at(server, "#/run/run/agent"), width=390)
        browser.wait(lambda: browser.js("document.querySelector('.screen')?.naturalWidth > 0"), "a screen on a phone")
        assert browser.js("document.documentElement.scrollWidth") <= 390
        (player,) = server.players._players.values()
        browser.driver.find_element(By.ID, "tab-log").click()
        browser.wait(lambda: not player.running, "it ends when nobody watches")
        assert browser.errors() == []


def test_everything_can_be_reached_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "run", 50)
    write_run(tmp_path / "run2", 50)
    with served(tmp_path) as server:
        browser.open(at(server))
        browser.shows("run2")
        link = browser.driver.find_element(By.ID, "open run")
        link.send_keys(Keys.ENTER)
        browser.shows("Training", "[role=tab][aria-selected=true]")
        browser.driver.find_element(By.ID, "tab-training").send_keys(Keys.ARROW_RIGHT)
        browser.shows("Speed", "[role=tab][aria-selected=true]")
        browser.wait(lambda: browser.js("document.activeElement.id") == "tab-speed", "the focus is on the tab")
        browser.js("document.querySelector('.plot[tabindex]').focus()")
        browser.press(Keys.HOME)
        browser.shows("at 10", ".chart .keys")
        browser.press(Keys.ARROW_RIGHT)
        browser.shows("at 20", ".chart .keys")
        browser.press("+")  # half of 10 to 500, about 20: 20 - 10 / 2 to 20 + 480 / 2

        def shown() -> str:
            label: str = browser.js("document.activeElement.ariaLabel")
            return label.split(" over steps")[1].split(":")[0]

        browser.wait(lambda: shown() == " 15 to 260", "it is zoomed")
        browser.press(Keys.END)  # the range follows the cursor to 500
        browser.shows("at 500", ".chart .keys")
        browser.wait(lambda: shown() == " 255 to 500", "it has moved")
        add_rows(tmp_path / "run", 510, 520)
        browser.wait(lambda: browser.js("rowsOf('run').steps.length") == 52, "two more rows")
        assert shown() == " 255 to 500"
        browser.press("-")
        browser.wait(lambda: shown() == " 10 to 500", "twice as much")
        browser.press(Keys.ESCAPE)
        browser.wait(lambda: shown() == "", "all")
        browser.js("document.querySelector('.help').focus()")
        browser.wait(lambda: browser.js("!document.getElementById('tip').hidden"), "the explanation")
        browser.press(Keys.ESCAPE)
        assert browser.js("document.getElementById('tip').hidden")
        assert (
            browser.js(f"[...document.querySelectorAll('button, input, select, a, img')].filter({UNNAMED}).length") == 0
        )


@pytest.mark.parametrize("tab", ["training", "speed", "gossip", "hosts", "values", "agent", "log", "settings", ""])
def test_it_fits_a_phone(browser: Browser, tmp_path: Path, tab: str) -> None:
    status = {"members": MEMBERS, "hosts": HOSTS, "traffic": TRAFFIC, "policy_lag": {"0": 5}}
    run = write_run(tmp_path / ("a-very-long-name-of-a-run" * 3), 9, **status)
    add_rows(run, 100, 110, **{"gossip/distance": 0.1, "gossip/bound": 0.4, "gossip/mixed": 3})
    write_run(tmp_path / "other", 9)
    with served(tmp_path) as server:
        browser.open(at(server, f"#/run/{run.name}/{tab}" if tab else ""), width=390)
        browser.shows("a-very-long-name", "main")
        browser.wait(lambda: not tab or browser.text("#panel").strip(), "the panel")
        assert browser.js("document.documentElement.scrollWidth") <= 390
        assert browser.errors() == []


def test_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "run", 9)
    with served(tmp_path) as server:
        for wanted in ("light", "dark"):
            media = {"features": [{"name": "prefers-color-scheme", "value": wanted}]}
            browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            browser.open(at(server))
            browser.shows("run")
            assert browser.js("document.documentElement.classList.contains('dark')") == (wanted == "dark")
        browser.driver.find_element(By.ID, "theme").click()
        assert not browser.js("document.documentElement.classList.contains('dark')")
        browser.open(at(server))  # it is remembered
        assert not browser.js("document.documentElement.classList.contains('dark')")


def test_names_of_runs_are_no_html(browser: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=window.broken=1>"
    write_run(tmp_path / name, 3)
    with open(tmp_path / name / "run.log", "a") as log:
        log.write("2026-01-02 03:04:05 <script>window.broken=1</script>\n")
    write_run(tmp_path / "other", 3)
    with served(tmp_path) as server:
        browser.open(at(server))
        browser.shows(name)
        browser.driver.find_element(By.ID, f"open {name}").click()
        browser.shows(name, "h1")
        browser.driver.find_element(By.ID, "tab-log").click()
        browser.shows("<script>", ".log")
        assert browser.js("window.broken") is None
