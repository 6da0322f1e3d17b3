"""The command `export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gossamer.commands.words import Directory, Member, Which
from gossamer.config.command_line import help_text, left_open
from gossamer.system.errors import UserError


@dataclass(frozen=True)
class Export:
    """Write the policy of a run to a folder of its own, with a model card."""

    run_dir: Directory
    out: Annotated[Path, help_text("Folder to write to.")]
    checkpoint: Which = "last"
    member: Member = "average"
    onnx: Annotated[bool, help_text("Also write model.onnx (extra [onnx]).")] = False
    overwrite: Annotated[bool, help_text("Replace an earlier export.")] = False
    push: Annotated[
        str | None,
        left_open(
            "Also upload it to this model repository of the Hugging Face Hub (extra [hub]).", str, "(default: none)"
        ),
    ] = None
    private: Annotated[bool, help_text("Make a new repository private.")] = False

    def __call__(self) -> None:
        from gossamer.export.export import export
        from gossamer.export.hub import check_push, push

        if self.push is None and self.private:
            raise UserError("--private: has no effect without --push USER/NAME")
        if self.push is not None:
            check_push(self.push)
        written = export(
            self.run_dir,
            self.out,
            checkpoint=self.checkpoint,
            member=self.member,
            onnx=self.onnx,
            overwrite=self.overwrite,
        )
        print(f"{self.out}: {', '.join(written)}", flush=True)
        if self.push is not None:
            print(f"pushed to {push(self.out, self.push, written, private=self.private)}")
