"""The command `watch`."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gossamer.config.command_line import help_text, left_open
from gossamer.system.errors import UserError

Folder = Annotated[Path, tyro.conf.Positional, help_text("A folder with run directories, or one of them.")]


@dataclass(frozen=True)
class Watch:
    """Show runs in a browser, live, or save them as one HTML file."""

    folder: Folder = Path("runs")
    port: Annotated[int, help_text("Port; the next free one where it is taken. [1 to 65535]")] = 6006
    host: Annotated[
        str, help_text("Address to serve at. Other than 127.0.0.1: other machines can open the page, with a token.")
    ] = "127.0.0.1"
    open: Annotated[bool, help_text("Open the page in a browser.")] = False
    save: Annotated[
        Path | None,
        left_open("Write an .html file with the runs as they are now, and end.", Path, "(default: none)"),
    ] = None

    def __call__(self) -> None:
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such directory; give a folder with run directories")
        if not 1 <= self.port <= 65535:
            raise UserError(f"--port {self.port}: must be at least 1 and at most 65,535")
        given = {"--port": self.port != Watch.port, "--host": self.host != Watch.host, "--open": self.open}
        if self.save is not None and any(given.values()):
            flag = next(flag for flag in given if given[flag])
            raise UserError(f"{flag}: has no effect with --save, which serves no page; leave it out")
        if self.save is not None:
            self._save(self.save)
        else:
            self._serve()

    def _save(self, path: Path) -> None:
        from gossamer.page.document import page
        from gossamer.page.folder import Folder
        from gossamer.page.stream import everything
        from gossamer.storage.files import atomic_write

        if path.suffix.lower() != ".html":
            raise UserError(f"--save {path}: must end in .html")
        if not path.parent.is_dir():
            raise UserError(f"--save {path}: there is no directory {path.parent}")
        folder = Folder(self.folder)
        data = everything(folder)
        if not folder.runs:
            raise UserError(f"{self.folder}: no run directory in it; train first, or give another folder")
        try:
            atomic_write(path, page(data))
        except OSError as error:
            raise UserError(f"--save {path}: cannot be written ({error.strerror}); give another file") from error
        print(f"{path}: {len(folder.runs)} run{'s' * (len(folder.runs) > 1)}, {path.stat().st_size / 1e3:,.0f} kB")

    def _serve(self) -> None:
        from gossamer.page.server import bind

        server = bind(self.folder, self.host, self.port, print)
        print(f"{self.folder}: {server.access.address} (Ctrl-C ends)", flush=True)
        if self.open:
            import webbrowser

            webbrowser.open(server.access.address)
        for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background processes with SIGINT ignored
            signal.signal(number, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            server.server_close()
