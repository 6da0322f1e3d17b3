"""Pushes an export to the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from gossamer.export.folder import FILES
from gossamer.system.errors import UserError
from gossamer.system.installation import install
from gossamer.system.version import __version__


def check_push(repo: str) -> None:
    """Raise `UserError` where the package is missing, or where `repo` is no name of a repository."""
    if find_spec("huggingface_hub") is None:
        raise UserError(f"--push {repo}: needs huggingface_hub; run {install('hub')}")
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError(f"--push {repo}: give USER/NAME ({str(error).splitlines()[0]})") from error


def push(folder: Path, repo: str, files: Sequence[str], *, private: bool = False) -> str:
    """Upload these files of an export to a model repository, which is made where there is none; returns its address.

    `repo`: USER/NAME. The token is that of `hf auth login`, or of HF_TOKEN; the address of the Hub that of HF_ENDPOINT.
    Raises `UserError` in one line for whatever the Hub refuses, and where it cannot be reached."""
    check_push(repo)
    from huggingface_hub import HfApi

    hub = HfApi(library_name="gossamer", library_version=__version__)
    try:
        made = hub.create_repo(repo, private=private or None, exist_ok=True)
        hub.upload_folder(
            repo_id=made.repo_id,
            folder_path=folder,
            allow_patterns=list(files),
            delete_patterns=[name for name in FILES if name not in files],  # of an earlier export
            commit_message=f"Policy exported by Gossamer {__version__}",
        )
    except Exception as error:  # of the Hub, of the network, of the client: the export itself stands
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"--push {repo}: {why}; the export is in {folder} (log in with `hf auth login`?)") from error
    return str(made)
