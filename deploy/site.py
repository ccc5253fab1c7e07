#!/usr/bin/env python3
"""Builds the site of the pages below target/site, checks its links, and prints where it begins.

    deploy/site.py --mdbook PROGRAM

The table of contents is the list in docs/README.md; further pages of a folder follow that folder's
README.md, or are at the end. Needs mdbook 0.4, which `.ci/long site` installs.
"""
import argparse
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOOK = """[book]
title = "zlock"
src = "src"
[build]
build-dir = "html"
create-missing = false
[output.html]
no-section-label = true
"""
LINK = re.compile(r"(\]\()([^)#:]+\.md)")


def read(page):
    """Text of a page. mdbook renders a README.md as index.html, and does not adapt links to it."""
    text = (ROOT / page).read_text()
    return LINK.sub(lambda link: link[1] + renamed(link[2]), text)


def renamed(path):
    return re.sub(r"README\.md$", "index.md", path)


def title(page):
    return re.search(r"^# (.*)$", (ROOT / page).read_text(), re.M)[1].replace("`", "")


def summary(pages):
    """Table of contents: the pages in the order of docs/README.md, each of the others once below."""
    lines, left = ["# Summary\n", f"[{title('README.md')}](index.md)"], set(pages) - {"README.md"}

    def add(page, depth):
        if page in left:
            left.remove(page)
            lines.append(f"{'  ' * depth}- [{title(page)}]({renamed(page)})")

    for line in (ROOT / "docs/README.md").read_text().splitlines():
        if line.startswith("Pages for "):
            lines.append(f"\n# {line.rstrip(':')}\n")
        elif row := re.match(r"\| \[[^]]*\]\(([^)]*)\)", line):
            page = os.path.normpath(os.path.join("docs", row[1]))
            add(page, 0)
            if page.endswith("/README.md"):
                for other in sorted(left):
                    if os.path.dirname(other) == os.path.dirname(page):
                        add(other, 1)
    lines.append("\n# Further pages\n")
    for page in sorted(left):
        add(page, 0)
    return "\n".join(lines) + "\n"


class Page(html.parser.HTMLParser):
    """The ids and the links of a built page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, _, attributes):
        for name, value in attributes:
            if name in ("id", "name"):
                self.ids.add(value)
            elif name in ("href", "src") and value and not urllib.parse.urlsplit(value).scheme:
                self.links.add(value)


def broken(site):
    """The links of the built pages that lead nowhere."""
    # print.html has all pages one after the other, and 404.html is shown at any depth.
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name not in ("print.html", "404.html", "toc.html")}
    for path, page in sorted(pages.items()):
        for link in sorted(page.links):
            target, _, anchor = urllib.parse.unquote(link).partition("#")
            full = pathlib.Path(os.path.normpath(path.parent / target)) if target else path
            if not full.is_file() or (anchor and full in pages and anchor not in pages[full].ids):
                yield f"{path.relative_to(site)}: {link}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--mdbook", default="mdbook", help="the program mdbook")
    mdbook = arguments.parse_args().mdbook
    out = ROOT / "target/site"
    shutil.rmtree(out, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    pages = listed.stdout.split()
    for page in pages:
        copy = out / "src" / renamed(page)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(read(page))
    (out / "src/SUMMARY.md").write_text(summary(pages))
    (out / "book.toml").write_text(BOOK)
    subprocess.run([mdbook, "build", out], check=True, stdout=subprocess.DEVNULL)
    lost = list(broken(out / "html"))
    if lost:
        sys.exit("links that lead nowhere:\n" + "\n".join(lost))
    print(out / "html/index.html")


if __name__ == "__main__":
    main()
