"""`millrace help`: the same as `--help`, of any command."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def help_of(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Words of a command.")] = None,
) -> None:
    """Explain a command; without one, list all."""
    root: Any = context.find_root()
    command, place, path = root.command, root, list[str]()
    for word in words or ():
        if not hasattr(command, "commands"):
            if command.context_settings.get("ignore_unknown_options"):
                break  # `millrace switch` reads its words itself
            raise typer.BadParameter(f"`millrace {' '.join(path)}` has no commands", param_hint=repr(word))
        # Its error for an unknown word names the group and similar words.
        _, command, _ = command.resolve_command(place, [word])
        place = typer.Context(command, parent=place, info_name=word)
        path.append(word)
    root.command.main([*(words or ()), "--help"], prog_name="millrace")
