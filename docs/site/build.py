"""Build the site: `python docs/site/build.py [OUT [NAME ...]]`, by default into build/site.

The pages of the checkout are copied next to the index and the API pages, in the checkout's own layout, so that their
links work. Sphinx needs no network, takes warnings as errors, and writes the same bytes each time. What `make figures`
wrote is copied and linked if it is there. Names of cards and workloads limit the page of estimates to these.
"""

import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import estimates  # beside this file
import sphinx.cmd.build

import heshare

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "*.md",
    "docs/*.md",
    "data/README.md",
    "data/profiles/**/README.md",
    "figures/README.md",
    "reference/README.md",
)
STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running")
ROOMS = ("device_query", "lab.advice", "paper.explore", "lab.sweeps", "testing", "shared.errors")
"""What is documented beside the stages: what users import."""
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


_BEYOND = '<li><a href="beyond.html">Beyond the paper</a></li>\n'
"""The last entry of the contents of the page of results."""


def main(out: Path, *only: str) -> int:
    """Build the site into a folder and return the exit code of Sphinx."""
    source, doctrees = (out.with_name(f"{out.name}-{part}") for part in ("source", "doctrees"))
    for folder in (source, doctrees, out):
        shutil.rmtree(folder, ignore_errors=True)
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    for page in sorted(pages):
        _write(source / page.relative_to(ROOT), page.read_text("utf-8"))
        _copy_linked(page, pages, source)
    index = (ROOT / "docs/site/index.md").read_text("utf-8")
    guides = [page.stem for page in sorted((ROOT / "docs").glob("*.md")) if f"docs/{page.stem}\n" not in index]
    index = index.replace("% guides", "\n".join(f"docs/{guide}" for guide in guides))
    _write(source / "index.md", index.replace("% results", _results(ROOT / "figures", out)))
    asked = (ROOT / "docs/site/estimate.md").read_text("utf-8")
    for mark, text in estimates.write(out / "estimate", only).items():
        asked = asked.replace(mark, text)
    _write(source / "estimate.md", asked)
    for name, text in _api():
        _write(source / "api" / f"{name}.rst", text)
    words = ["-W", "--keep-going", "-q", "-b", "html", "-c", str(ROOT / "docs/site"), "-d", str(doctrees)]
    return int(sphinx.cmd.build.main([*words, str(source), str(out)]))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _copy_linked(page: Path, pages: set[Path], source: Path) -> None:
    """Copy the files that a page links and that are no pages, such as pictures and tables."""
    for link, _ in _LINK.findall(page.read_text("utf-8")):
        target = (page.parent / link).resolve()
        if target.is_file() and target not in pages and target.is_relative_to(ROOT):
            copy = source / target.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)


def _results(figures: Path, out: Path) -> str:
    """Copy the page of results and the executed notebooks into the site and return the index's lines on them."""
    if not (figures / "index.html").is_file():
        return "`make figures` writes a page of all results; `make site` after it puts the page here."
    shutil.copytree(figures, out / "figures", ignore=shutil.ignore_patterns(".*", "README.md"))
    front = out / "figures/index.html"
    link = '<li><a href="../estimate.html">Estimate in the browser</a></li>\n'
    front.write_text(front.read_text("utf-8").replace(_BEYOND, _BEYOND + link), "utf-8")
    pages = sorted((figures / "notebooks").glob("*.html"))
    notebooks = ", ".join(f'<a href="figures/notebooks/{page.name}">{page.stem}</a>' for page in pages)
    link = '<a href="figures/index.html">The results of this checkout: claims, figures and tables</a>'
    return f"{link}." + f" The notebooks as run: {notebooks}." * bool(pages)


def _api() -> Iterator[tuple[str, str]]:
    """Yield the API pages: the names of `import heshare as hs`, and the public names of the stages' modules."""
    names = [name for name in heshare.__all__ if not name.startswith("_")]
    parts = [_title("import heshare as hs")]
    for name in names:
        value = getattr(heshare, name)
        kind = "autoclass" if inspect.isclass(value) else "autofunction"
        # What a stage's page documents is no second target of links here.
        again = value.__module__.removeprefix("heshare.").startswith((*STAGES, *ROOMS))
        parts.append(f".. {kind}:: heshare.{name}" + "\n   :no-index:" * again)
    yield "heshare", "\n\n".join(parts) + "\n"
    for package in (*STAGES, *ROOMS):
        name = f"heshare.{package}"
        parts = [_title(name), f".. automodule:: {name}"]
        for module in _modules(name):
            parts += [_title(module.removeprefix(f"{name}."), "-"), f".. automodule:: {module}"]
        yield package, "\n\n".join(parts) + "\n"


def _title(text: str, rule: str = "=") -> str:
    return f"{text}\n{rule * len(text)}"


def _modules(name: str) -> list[str]:
    folders = getattr(import_module(name), "__path__", ())
    return sorted(f"{name}.{module.name}" for module in iter_modules(folders))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "build" / "site", *sys.argv[2:]))
