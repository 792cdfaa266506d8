"""A session as evidence: exported as one file, and imported from one as an ordinary session."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import IO

from aaco import __version__, pipeline
from aaco.core import files
from aaco.core.config import Settings
from aaco.core.errors import BadBundle, StorageError, UsageError
from aaco.core.redaction import redact
from aaco.core.session import RECORD, Session
from aaco.core.show import SILENT, Show
from aaco.report.renderers import output_formats
from aaco.tracelake import manifest
from aaco.tracelake.share import archive, redact_bundle
from aaco.tracelake.share.archive import Contents, File

HTML = ".html"


def export(session: Session, path: Path, settings: Settings, show: Show = SILENT) -> Contents | None:
    """Write a session into one file, in the form that its name asks for; None for a page of HTML, which is no bundle.

    Credentials are taken out or their file is left out, and the list says so. What is damaged is not handed on as if it
    were whole; a session that was killed may be what is to be examined. Raises AacoError.
    """
    if session.status == "running":
        raise UsageError(f"session {session.id} is running", "export it when it has ended")
    manifest.refuse_damage(session)
    if path.suffix == HTML:
        page = redact(output_formats.render(pipeline.explain(session, settings), "html", "plain"))
        files.write_atomically(path, lambda file: file.write(page.encode()))
        return None
    form = archive.form_of(path)
    with files.storage(path.parent), tempfile.TemporaryDirectory(prefix="aaco-bundle-") as folder:
        disclosed, left_out = redact_bundle.redact_session(session, Path(folder))
        listed = [File(name=disclosed_file.name, bytes=disclosed_file.path.stat().st_size,
                       sha256=files.sha256(disclosed_file.path),
                       redacted=disclosed_file.redacted) for disclosed_file in disclosed]
        record = session.record
        try:
            contents = Contents(session_id=record.session_id, status=session.status, tool_version=__version__,
                                files=listed, withheld=left_out)
        except ValueError as error:
            raise BadBundle(f"session {session.id} does not fit into a bundle: {error}", "aaco info SESSION") from error
        paths = {disclosed_file.name: disclosed_file.path for disclosed_file in disclosed}
        done = count(1)

        def opened(name: str) -> IO[bytes]:
            show.progress(next(done), len(paths))
            return paths[name].open("rb")

        archive.write(path, contents, opened, form)
    return contents


def import_(path: Path, settings: Settings, most_bytes: int = archive.MOST_BYTES, show: Show = SILENT) -> Session:
    """The session of a bundle, under its own id. Raises AacoError, and then leaves nothing.

    It is unpacked next to its place and moved there in one rename, after every file was verified by the list and
    against the session's own manifest. Where a session of this id is already, it stays.
    """
    root = settings.config.storage.sessions_dir
    show.step(f"checking {path}")
    contents = _listed(path, most_bytes, show)
    _require_room(root, contents)
    nursery = root / f".bundle-{secrets.token_hex(6)}"
    try:
        with files.storage(root):
            nursery.mkdir(parents=True)
        show.step(f"unpacking {path}")
        archive.extract(path, nursery, most_bytes, show.progress)
        return _settle(Session(nursery), contents.session_id, root)
    finally:
        shutil.rmtree(nursery, ignore_errors=True)


def _listed(path: Path, most_bytes: int, show: Show) -> Contents:
    contents = archive.check(path, most_bytes, show.progress)
    for name, problem in contents.problems.items():
        raise BadBundle(f"{path}: {name}: {problem}", archive.REMEDY)
    assert contents.contents
    return contents.contents


def _require_room(root: Path, contents: Contents) -> None:
    place = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.is_dir())
    if shutil.disk_usage(place).free < contents.unpacked:
        raise StorageError(f"{root}: {contents.unpacked:,} bytes do not fit on its disk",
                           "aaco gc --dry-run shows what can go; --sessions-dir names another place")


def _settle(unpacked: Session, name: str, root: Path) -> Session:
    """Give an unpacked session its place. Raises BadBundle, UsageError."""
    record = unpacked.record
    if record.session_id != name:
        raise BadBundle(f"{RECORD} is that of session {record.session_id!r}, the list that of {name}", archive.REMEDY)
    if manifest.is_sealed(unpacked):
        for file, problem in manifest.check(unpacked).items():
            raise BadBundle(f"{file}: {problem}, by the session's own manifest", archive.REMEDY)
    if record.owner or record.kept_by:
        unpacked.amend(owner=None, kept_by=[])
    folder = root / f"{datetime.fromisoformat(record.created_utc):%Y-%m-%d}" / name
    if folder.exists():
        raise UsageError(f"session {name} is there already: {folder}", "import it into another --sessions-dir")
    with files.storage(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        unpacked.folder.rename(folder)
    return Session.open(folder)
