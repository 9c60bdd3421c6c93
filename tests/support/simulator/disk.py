"""Files in memory: their calls fail, are cut short or meet the end of their process; locks as of flock(2)."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PosixPath
from typing import Any, ClassVar

from support.simulator.kernel import Machine, Process, Thread, Waitable

USER = 1000


def failure(code: int, path: object = None) -> OSError:
    return OSError(code, os.strerror(code), None if path is None else str(path))


class Inode:
    """A file or a folder. `synced` is what a power cut leaves of it; `holder` is the open file that has its lock."""

    __slots__ = ("data", "holder", "mode", "mtime", "names", "number", "synced")

    def __init__(self, number: int, mode: int, mtime: float) -> None:
        self.number, self.mode, self.mtime = number, mode, mtime
        self.data, self.synced = bytearray(), b""
        self.names: dict[str, Inode] = {}
        self.holder: OpenFile | None = None

    @property
    def folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


class OpenFile(Waitable):
    """An open file description."""

    __slots__ = ("append", "inode", "path", "position", "references", "writes")

    def __init__(self, inode: Inode, path: str, flags: int) -> None:
        super().__init__()
        self.inode, self.path, self.position, self.references = inode, path, 0, 0
        self.append, self.writes = bool(flags & os.O_APPEND), bool(flags & (os.O_WRONLY | os.O_RDWR))

    def ready(self) -> bool:
        return True

    def closed(self) -> None:
        if self.inode.holder is self:
            self.inode.holder = None


class Disk:
    """The tree of files of a machine; `struck` is called before each change, and may raise, kill or shorten it."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.count = machine, 0
        self.root = self._inode(stat.S_IFDIR | 0o755)
        self.changes = 0

    def _inode(self, mode: int) -> Inode:
        self.count += 1
        return Inode(self.count, mode, self.machine.now)

    def make(self, path: str, content: bytes | None = None, mode: int = 0o700) -> Inode:
        """Make a file, or without content a folder, from outside the simulation."""
        node = self.root
        *folders, last = [part for part in path.split("/") if part]
        for name in folders:
            node = node.names.setdefault(name, self._inode(stat.S_IFDIR | 0o755))
        made = self._inode((stat.S_IFDIR if content is None else stat.S_IFREG) | mode)
        if content is not None:
            made.data, made.synced = bytearray(content), content
        node.names[last] = made
        return made

    def find(self, path: str) -> Inode | None:
        node: Inode | None = self.root
        for name in _names(path):
            if node is None:
                return None
            node = node.names.get(name)
        return node

    def get(self, path: str) -> Inode:
        node = self.find(path)
        if node is None:
            raise failure(errno.ENOENT, path)
        return node

    def parent(self, path: str) -> tuple[Inode, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self.get(above or "/"), name

    def files(self, top: str = "/") -> Iterator[str]:
        node = self.find(top)
        for name, child in sorted(node.names.items()) if node is not None else ():
            path = f"{top.rstrip('/')}/{name}"
            if child.folder:
                yield from self.files(path)
            else:
                yield path

    def read(self, path: str) -> bytes:
        """Return the content of a file under /proc, or of a plain one."""
        self.machine.alive()
        if path.startswith("/proc/"):
            return _proc(self.machine, path)
        return bytes(self.get(path).data)


@lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple([name for name in path.split("/") if name])


def _proc(machine: Machine, path: str) -> bytes:
    parts = path.split("/")
    if parts[2] == "sys":
        return f"boot-{machine.boot}".encode()  # type: ignore[attr-defined]
    process = machine.processes.get(int(parts[2]))
    if process is None:
        raise failure(errno.ENOENT, path)
    match parts[3]:
        case "stat":
            state, parent = "S" if process.alive else "Z", process.parent
            above = parent.pid if parent is not None and parent.alive else 1
            fields = [state, above, process.pid, process.pid, *[0] * 15, process.started]
            return f"{process.pid} ({process.comm}) {' '.join(map(str, fields))}".encode()
        case "environ":
            return b"\0".join(f"{name}={value}".encode() for name, value in process.environment.items()) + b"\0"
        case "status":
            return f"Name: x\nUid:\t{USER}\t{USER}\t{USER}\t{USER}\n".encode()
        case "comm":
            return process.comm.encode()
    raise failure(errno.ENOENT, path)


class SimPath(PosixPath):
    """A path on the machine in memory."""

    __slots__ = ()
    os: Any = None
    """The calls of the machine, set by `edges`."""
    _made: ClassVar[dict[tuple[Any, ...], SimPath]] = {}

    def __new__(cls, *parts: Any) -> SimPath:
        found = cls._made.get(parts)
        if found is None:
            found = cls._made[parts] = super().__new__(cls, *parts)
        return found

    def __truediv__(self, name: Any) -> SimPath:
        return SimPath(str(self), name)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self.os.stat(self)

    def lstat(self) -> os.stat_result:
        return self.os.stat(self)

    def exists(self) -> bool:
        return self._mode() != 0

    def is_file(self) -> bool:
        return stat.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self._mode())

    def is_socket(self) -> bool:
        return False

    def is_symlink(self) -> bool:
        return False

    def absolute(self) -> SimPath:
        return self

    def readlink(self) -> SimPath:
        return SimPath("pid:[1]")

    def _mode(self) -> int:
        try:
            return int(self.os.stat(self).st_mode)
        except OSError:
            return 0

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if self.exists():
            if exist_ok:
                return
            raise FileExistsError(errno.EEXIST, "File exists", str(self))
        if parents and not self.parent.exists():
            self.parent.mkdir(parents=True, exist_ok=True)
        self.os.mkdir(self, mode)

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        self.os.chmod(self, mode)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self.os.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def replace(self, target: Any) -> Any:
        self.os.replace(self, target)
        return SimPath(target)

    def read_bytes(self) -> bytes:
        return bytes(self.os.disk.read(str(self)))

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        return self.read_bytes().decode(errors=errors or "strict")

    def write_text(self, text: str, encoding: str | None = None, errors: Any = None, newline: Any = None) -> int:
        descriptor = self.os.open(self, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with self.os.fdopen(descriptor, "wb") as stream:
            return int(stream.write(text.encode()))

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        assert mode == "rb"
        return io.BytesIO(self.read_bytes())

    def glob(self, pattern: str) -> Iterator[SimPath]:  # type: ignore[override]
        self.os.machine.alive()
        if str(self) == "/proc":
            names = [str(pid) for pid in sorted(self.os.machine.processes)]
        else:
            node = self.os.disk.find(str(self))
            names = list(node.names) if node is not None else []
        return iter([self / name for name in names if fnmatch.fnmatchcase(name, pattern)])


class SimOs:
    """What `os` is to the modules of `ops`, on a machine in memory; constants are the system's."""

    PathLike = os.PathLike

    def __init__(self, machine: Machine, disk: Disk) -> None:
        self.machine, self.disk, self.path = machine, disk, self
        self.struck: Any = lambda call, path, size: size

    def __getattr__(self, name: str) -> Any:
        if (
            name.isupper()
            or name[:2] in ("O_", "P_")
            or name in ("sep", "pathsep", "devnull", "fsencode", "fspath", "strerror")
        ):
            setattr(self, name, getattr(os, name))
            return getattr(os, name)
        raise AttributeError(f"the machine in memory has no os.{name}")

    # Processes

    @property
    def environ(self) -> dict[str, str]:
        return self.machine.process.environment

    def getpid(self) -> int:
        return self.machine.process.pid

    def geteuid(self) -> int:
        return USER

    getuid = geteuid

    def uname(self) -> Any:
        return os.uname_result(("Linux", "host", "6", "1", "x86_64"))

    def _exit(self, code: int) -> None:
        from support.simulator.kernel import Exited

        self.machine.alive()
        raise Exited(code)

    def kill(self, pid: int, number: int) -> None:
        self.machine.alive()
        process = self.machine.processes.get(pid)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        process.signal(number)

    def pidfd_open(self, pid: int) -> int:
        self.machine.alive()
        if pid not in self.machine.processes:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return self.machine.number(self.machine.process, PidFile(self.machine.processes[pid]))

    # Files

    def _file(self, number: int) -> Any:
        self.machine.alive()
        try:
            return self.machine.process.files[number]
        except KeyError:
            raise failure(errno.EBADF) from None

    def _change(self, call: str, path: str, size: int = 0) -> int:
        self.machine.alive()
        self.disk.changes += 1
        self.machine.log(call, self.machine.process.name, path, size)
        return int(self.struck(call, path, size))

    def after(self, call: str) -> None:
        """Called once a change is made, where a process can end as well."""

    def _full(self, path: Any, folder: int | None) -> str:
        text = str(path)
        return text if text.startswith("/") or folder is None else f"{self._file(folder).path}/{text}"

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        self.machine.alive()
        text = self._full(path, dir_fd)
        node = self.disk.find(text)
        if node is None:
            if not flags & os.O_CREAT:
                raise failure(errno.ENOENT, text)
            above, name = self.disk.parent(text)
            self._change("create", text)
            node = above.names[name] = self.disk._inode(stat.S_IFREG | (mode & ~0o022))
            self.after("create")
        elif flags & os.O_EXCL and flags & os.O_CREAT:
            raise failure(errno.EEXIST, text)
        elif node.folder and flags & (os.O_WRONLY | os.O_RDWR):
            raise failure(errno.EISDIR, text)
        if flags & os.O_TRUNC and node.data:
            self._change("truncate", text)
            node.data.clear()
            self.after("truncate")
        return self.machine.number(self.machine.process, OpenFile(node, text, flags))

    def close(self, number: int) -> None:
        self._file(number)
        self.machine.process.close(number)

    def _put(self, file: OpenFile, content: bytes, position: int) -> int:
        size = self._change("write", file.path, len(content))
        content = bytes(content[:size])
        file.inode.data[position : position + len(content)] = content
        file.inode.mtime = self.machine.now
        self.after("write")
        return len(content)

    def write(self, number: int, content: bytes) -> int:
        file = self._file(number)
        if not isinstance(file, OpenFile):
            return int(file.write(bytes(content)))
        position = len(file.inode.data) if file.append else file.position
        written = self._put(file, bytes(content), position)
        file.position = position + written
        return written

    def pwrite(self, number: int, content: bytes, position: int) -> int:
        return self._put(self._file(number), content, position)

    def read(self, number: int, size: int) -> bytes:
        file = self._file(number)
        if not isinstance(file, OpenFile):
            return bytes(file.read(size))
        piece = bytes(file.inode.data[file.position : file.position + size])
        file.position += len(piece)
        return piece

    def pread(self, number: int, size: int, position: int) -> bytes:
        return bytes(self._file(number).inode.data[position : position + size])

    def fsync(self, number: int) -> None:
        file = self._file(number)
        self._change("sync", file.path)
        file.inode.synced = bytes(file.inode.data)
        self.after("sync")

    def ftruncate(self, number: int, size: int) -> None:
        file = self._file(number)
        if len(file.inode.data) != size:
            self._change("truncate", file.path, size)
            file.inode.data[size:] = bytes(max(0, size - len(file.inode.data)))
            self.after("truncate")

    def lseek(self, number: int, position: int, how: int) -> int:
        file = self._file(number)
        file.position = position if how == os.SEEK_SET else len(file.inode.data) + position
        return int(file.position)

    def fdopen(self, number: int, mode: str = "r", **_: Any) -> Stream:
        return Stream(self, number, text="b" not in mode)

    def open_stream(self, number: Any, mode: str = "r", **options: Any) -> Stream:
        """What `open` is to a module that opens descriptors with it."""
        return Stream(self, number, text="b" not in mode, close=options.get("closefd", True))

    def fstat(self, number: int) -> os.stat_result:
        return self._status(self._file(number).inode)

    def stat(self, path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        self.machine.alive()
        return self._status(self.disk.get(self._full(path, dir_fd)))

    lstat = stat

    def _status(self, node: Inode) -> os.stat_result:
        times = (node.mtime, node.mtime, node.mtime)
        return os.stat_result((node.mode, node.number, 1, 1, USER, USER, len(node.data), *times))

    def samestat(self, one: os.stat_result, other: os.stat_result) -> bool:
        return one.st_ino == other.st_ino

    def set_blocking(self, number: int, blocking: bool) -> None:
        self._file(number)

    def fchmod(self, number: int, mode: int) -> None:
        node = self._file(number).inode
        node.mode = stat.S_IFMT(node.mode) | mode

    def chmod(self, path: Any, mode: int) -> None:
        self.machine.alive()
        node = self.disk.get(str(path))
        node.mode = stat.S_IFMT(node.mode) | mode

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        above, name = self.disk.parent(str(path))
        self._change("mkdir", str(path))
        above.names[name] = self.disk._inode(stat.S_IFDIR | (mode & ~0o022))
        self.after("mkdir")

    def unlink(self, path: Any) -> None:
        above, name = self.disk.parent(str(path))
        self.machine.alive()
        if name not in above.names:
            raise failure(errno.ENOENT, path)
        self._change("unlink", str(path))
        del above.names[name]
        self.after("unlink")

    def link(self, path: Any, target: Any) -> None:
        self.machine.alive()
        node, (above, name) = self.disk.get(str(path)), self.disk.parent(str(target))
        if name in above.names:
            raise failure(errno.EEXIST, target)
        self._change("link", str(target))
        above.names[name] = node
        self.after("link")

    def replace(self, path: Any, target: Any) -> None:
        (above, name), (over, new) = self.disk.parent(str(path)), self.disk.parent(str(target))
        self._change("rename", str(target))
        over.names[new] = above.names.pop(name)
        self.after("rename")

    def pipe(self) -> tuple[int, int]:
        from support.simulator.channels import pipe

        reading, writing = pipe(self.machine)
        return tuple(self.machine.number(self.machine.process, end) for end in (reading, writing))  # type: ignore[return-value]


class PidFile(Waitable):
    """A descriptor of a process, readable once that has ended."""

    __slots__ = ("process", "references")

    def __init__(self, process: Process) -> None:
        self.process, self.references = process, 0

    @property
    def waiters(self) -> list[Thread]:  # type: ignore[override]
        return self.process.waiters

    def ready(self) -> bool:
        return not self.process.alive

    def closed(self) -> None:
        pass


class Stream:
    """A file object over a descriptor; what is written goes to the file at `flush` or `close`, as with a buffer."""

    def __init__(self, calls: SimOs, number: int, *, text: bool, close: bool = True) -> None:
        self._os, self._number, self._text, self._close = calls, number, text, close
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._number

    def write(self, content: Any) -> int:
        self._buffer += content.encode() if self._text else content
        return len(content)

    def flush(self) -> None:
        while self._buffer:
            del self._buffer[: self._os.write(self._number, bytes(self._buffer))]

    def read(self, size: int = -1) -> Any:
        content = self._os.read(self._number, 1 << 30 if size < 0 else size)
        return content.decode() if self._text else content

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            if self._close:
                self._os.close(self._number)


class SimTemporary:
    """What `tempfile` is."""

    def __init__(self, calls: SimOs) -> None:
        self._os, self._count = calls, 0

    def gettempdir(self) -> str:
        return "/tmp"

    def _name(self, prefix: str, suffix: str, folder: Any) -> str:
        self._count += 1
        return f"{folder or '/tmp'}/{prefix}{self._count:08x}{suffix}"

    def mkstemp(self, suffix: str = "", prefix: str = "tmp", dir: Any = None) -> tuple[int, str]:
        name = self._name(prefix, suffix, dir)
        return self._os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), name

    def mkdtemp(self, suffix: str = "", prefix: str = "tmp", dir: Any = None) -> str:
        name = self._name(prefix, suffix, dir)
        self._os.mkdir(name, 0o700)
        return name


class SimShutil:
    """What `shutil` is: programs on the PATH, and the removal of a tree."""

    def __init__(self, calls: SimOs) -> None:
        self._os = calls
        self.programs: set[str] = set()

    def which(self, name: str, path: object = None) -> str | None:
        return f"/usr/bin/{name}" if name in self.programs else None

    def rmtree(self, path: Any, ignore_errors: bool = False) -> None:
        self._os.machine.alive()
        node = self._os.disk.find(str(path))
        if node is None:
            return
        try:
            for name, child in list(node.names.items()):
                if child.folder:
                    self.rmtree(f"{path}/{name}")
                else:
                    self._os.unlink(f"{path}/{name}")
            above, name = self._os.disk.parent(str(path))
            self._os._change("rmdir", str(path))
            del above.names[name]
            self._os.after("rmdir")
        except OSError:
            if not ignore_errors:
                raise


class SimFcntl:
    """What `fcntl` is."""

    LOCK_EX, LOCK_NB, LOCK_SH, F_GETFL = 2, 4, 1, 3

    def __init__(self, calls: SimOs) -> None:
        self._os = calls

    def flock(self, number: int, operation: int) -> None:
        file = self._os._file(number)
        if file.inode.holder not in (None, file):
            raise BlockingIOError(errno.EAGAIN, "locked")
        file.inode.holder = None if operation & self.LOCK_SH else file

    def fcntl(self, number: int, command: int) -> int:
        return os.O_RDWR if self._os._file(number).writes else os.O_RDONLY


class SimTime:
    """What `time` is."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.strftime, self.gmtime = time.strftime, time.gmtime

    def monotonic(self) -> float:
        self._machine.alive()
        self._machine.now += 1e-6  # a look at the clock takes a moment, so that who only looks gets on as well
        return self._machine.now

    def time(self) -> float:
        return self._machine.now + 1.7e9

    def sleep(self, time_s: float) -> None:
        self._machine.sleep(time_s)
