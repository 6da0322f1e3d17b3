"""Files that exist completely or not at all, and JSON that every parser accepts."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from gossamer.system.errors import UserError

T = TypeVar("T")
Content: TypeAlias = str | bytes | Callable[[Path], object]


def atomic_write(path: Path, content: Content, *, durable: bool = True) -> None:
    """Write `content` to a temporary file beside `path`, then rename it to `path`, replacing a file of that name.

    `content`: text, bytes, or a function that writes a file or a folder at the path it is given. That path has the
    suffix of `path`. The file and its rename are on disk when this returns, unless `durable` is False: then a power
    failure may lose them. Where it raises, `path` is unchanged and the temporary file is removed."""
    beside = temporary(path)
    try:
        if callable(content):
            content(beside)
        else:
            beside.write_bytes(content.encode() if isinstance(content, str) else content)
        if durable:
            sync(beside)
        beside.replace(path)
    except BaseException:
        _remove(beside)
        raise
    if durable:
        sync(path.parent)


def temporary(path: Path) -> Path:
    """A new name beside `path`: hidden, with the same suffix, recognised by `storage.contents`."""
    return path.with_name(f".{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def to_json(content: Any, indent: int | None = None) -> str:
    """Strict JSON: a number that is NaN or infinite becomes null."""
    return json.dumps(_finite(content), indent=indent, allow_nan=False)


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write strict JSON; the file exists completely or not at all."""
    atomic_write(path, to_json(content, indent=2) + "\n")


def read_json(path: Path, what: str, newest: int, parsed: Callable[[Any], T]) -> T:
    """What `parsed` makes of a file of JSON that has a number `format`. Raises `UserError` where the file is missing,
    damaged, or of a format later than `newest`. `what`: its folder is."""
    try:
        content = json.loads(path.read_text())
        if content["format"] > newest:
            raise UserError(f"{path}: written by a later version of Gossamer; this one reads format {newest}")
        return parsed(content)
    except FileNotFoundError as error:
        raise UserError(f"{path.parent}: not a {what} (no {path.name})") from error
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged ({error}); restore it or use another directory") from error
