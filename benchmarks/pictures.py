"""The pictures of the live page in docs/pictures, from trainings on this machine. Needs the packages chromium and
chromium-driver.

    .venv/bin/python -m benchmarks.pictures

`page-gossip.png`   PALA on Catch with two hosts of two learners each, one of them killed a moment ago
`page-agent.png`    the agent of a finished training plays Pong
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.page import GOSSAMER, port_of
from benchmarks.watched import Training, family, training

PONG = "paac --env pong --algorithm ppo --steps 700000 --stop-at-return 18"
PALA = "pala --env catch --hosts 2 --learners 2 --cluster local --steps 3000000"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")
PALA_SECONDS, PLAY_SECONDS, PATIENCE = 80.0, 12.0, 60.0
SIZES = {"page-gossip.png": (1440, 900), "page-agent.png": (1280, 860)}


@contextmanager
def browser(address: str, size: tuple[int, int]) -> Iterator[webdriver.Chrome]:
    """Chromium that shows an address, without a screen."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        driver.get(address)
        yield driver
    finally:
        driver.quit()


def picture(folder: Path, address: str, file: Path, there: str, *, seconds: float = 0.0, first: Any = None) -> None:
    """Show a page, call `first`, wait until the JavaScript expression `there` is true and a little longer, and save."""
    watch = [*GOSSAMER, "watch", str(folder), "--port", "6640"]
    with (
        training(watch, log=folder / "watch.log", marks=folder / "none") as page,
        browser(f"http://127.0.0.1:{port_of(page.log)}/{address}", SIZES[file.name]) as driver,
    ):
        wait = WebDriverWait(driver, PATIENCE, 0.05)
        wait.until(lambda _: driver.execute_script("return !!document.querySelector('.tile')"))
        if first is not None:
            first()
        wait.until(lambda _: driver.execute_script(f"return {there}"))
        time.sleep(seconds)
        if not driver.save_screenshot(str(file)):
            raise OSError(f"{file}: cannot be written")


def kill_a_host(trained: Training) -> None:
    """Kill one of the hosts of a PALA run."""
    hosts = [each for each in family(trained.process.pid) if "ray::HostProcess" in " ".join(each.cmdline())]
    os.kill(min(hosts, key=lambda each: each.pid).pid, signal.SIGKILL)


def gossip(work: Path, out: Path) -> None:
    """A run in which a host is away."""
    run = work / "pala"
    command = [*GOSSAMER, "train", *PALA.split(), "--run-dir", str(run)]
    with training(command, log=work / "pala.log", marks=run / "metrics.jsonl") as trained:
        trained.wait(PALA_SECONDS)
        away = "document.querySelectorAll('svg.graph .away').length > 0"
        picture(work, "#/run/pala/gossip", out / "page-gossip.png", away, first=lambda: kill_a_host(trained))


def agent(work: Path, out: Path) -> None:
    """A finished run whose agent plays."""
    subprocess.run([*GOSSAMER, "train", *PONG.split(), "--run-dir", str(work / "pong")], check=True)
    screen = "document.querySelector('.screen')?.naturalWidth > 0"
    picture(work, "#/run/pong/agent", out / "page-agent.png", screen, seconds=PLAY_SECONDS)


def main() -> None:
    """Train and take both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        gossip(Path(folder), out)
        agent(Path(folder), out)
    print(f"{out}: {', '.join(SIZES)}; {psutil.cpu_count()} cores, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
