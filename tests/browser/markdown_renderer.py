"""Airflow's own renderer of Markdown, as its UI ships it: the bundle is loaded into the browser, and what draws pages
there is handed out.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, Final

from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

_SECONDS: Final = 60
_USED: Final = re.compile(
    r"\(\w+=\[(?P<gfm>[\w$]+)\],.{0,160}\.jsx\)\((?P<markdown>[\w$]+),\{components:\w+,\.\.\.\w+,remarkPlugins:\w+,skipHtml:!0\}"
)
"""Where Airflow draws Markdown: by react-markdown, with one plugin, remark-gfm, and without HTML."""
_PAGE: Final = '<!doctype html><div id="root"></div><script type="module" src="/assets/{}"></script>'
_RENDER: Final = """
const seen = (node) => {
  if (node === null || node === undefined || typeof node === "boolean") return [];
  if (Array.isArray(node)) return node.flatMap(seen);
  if (typeof node !== "object") return [String(node)];
  const { children, node: _, ...props } = node.props ?? {};
  const inside = seen(children);
  return typeof node.type === "string" ? [[node.type, props.href ?? props.src ?? null, inside]] : inside;
};
return JSON.stringify(arguments[0].map((text) => seen(window.headraceMarkdown(text))));
"""


@dataclass(frozen=True)
class Element:
    """An element of a page: its tag, the address that it names, what is in it."""

    tag: str
    address: str | None
    inside: "tuple[Element | str, ...]"

    @property
    def text(self) -> str:
        """All text inside."""
        return "".join(one if isinstance(one, str) else one.text for one in self.inside)

    def all(self) -> "Iterator[Element]":
        """It and all elements inside."""
        yield self
        for one in self.inside:
            if isinstance(one, Element):
                yield from one.all()


@contextmanager
def airflow_markdown(driver: WebDriver) -> Iterator["MarkdownRenderer"]:
    """The renderer, in a page of ``driver``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Bundle, directory=str(_dist())))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        driver.get(f"http://127.0.0.1:{server.server_port}/page.html")
        WebDriverWait(driver, _SECONDS).until(lambda _: driver.execute_script("return !!window.headraceMarkdown"))
        yield MarkdownRenderer(driver)
    finally:
        driver.get("about:blank")
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class MarkdownRenderer:
    """Draws texts as Airflow does."""

    driver: WebDriver

    def draw(self, texts: Sequence[str]) -> list[Element]:
        """A page for each."""
        return [
            Element("page", None, _elements(page)) for page in json.loads(self.driver.execute_script(_RENDER, texts))
        ]


def _elements(page: Sequence[Any]) -> tuple[Element | str, ...]:
    return tuple(one if isinstance(one, str) else Element(one[0], one[1], _elements(one[2])) for one in page)


def _dist() -> Path:
    spec = find_spec("airflow")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "ui" / "dist"


def _entry() -> str:
    (entry,) = re.findall(r"assets/(index-[\w-]+\.js)", (_dist() / "index.html").read_text())
    return str(entry)


def _bundle() -> str:
    """The code of the UI, at whose end the renderer is put where the page finds it."""
    code = (_dist() / "assets" / _entry()).read_text()
    (used,) = _USED.finditer(code)
    draw = f"{used['markdown']}({{children: text, remarkPlugins: [{used['gfm']}], skipHtml: true}})"
    return f"{code}\n;window.headraceMarkdown = (text) => {draw};"


class _Bundle(SimpleHTTPRequestHandler):
    """Serves the UI's files, its entry with the addition."""

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Own pages first."""
        if self.path == "/page.html":
            return self._own(_PAGE.format(_entry()), "text/html")
        if self.path == f"/assets/{_entry()}":
            return self._own(_bundle(), "text/javascript")
        return super().send_head()

    def _own(self, content: str, kind: str) -> BytesIO:
        encoded_content = content.encode()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(encoded_content)))
        self.end_headers()
        return BytesIO(encoded_content)

    def log_message(self, *_: object) -> None:
        """Nothing: nobody reads it."""
