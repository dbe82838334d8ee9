"""What a page shows to people who use a keyboard, a screen reader, or need contrast: controls without a name or out of
reach, and text that is hard to read on what is behind it.
"""

from typing import Any

from selenium.webdriver.remote.webdriver import WebDriver

_ROOT = "document.querySelector('[data-headrace]')"
_SCRIPT = f"""
const root = {_ROOT};
const pixel = document.createElement("canvas").getContext("2d", {{ willReadFrequently: true }});
const rgba = (colour) => {{
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}};
const over = ([r, g, b, a], [s, t, u]) => [r * a + s * (1 - a), g * a + t * (1 - a), b * a + u * (1 - a), 1];
const behind = (element) => {{
  if (!element) return [255, 255, 255, 1];
  const own = rgba(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own : over(own, behind(element.parentElement));
}};
const light = ([r, g, b]) => {{
  const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}};
const contrast = (one, other) => {{
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}};
const isShown = (element) => element.checkVisibility() && !element.closest("[aria-hidden=true]");
const said = (element) => element.outerHTML.slice(0, 200);
const problems = [];
for (const element of root.querySelectorAll("a,button,input,select,textarea,summary,[role=button],[role=tab]")) {{
  if (!isShown(element) || element.type === "hidden") continue;
  const label = element.labels?.[0]?.innerText;
  const told = [element.getAttribute("aria-label"), label, element.innerText, element.textContent];
  if (!told.some((one) => one?.trim())) problems.push(`no name: ${{said(element)}}`);
  const isOtherTab = element.getAttribute("role") === "tab" && element.getAttribute("aria-selected") === "false";
  if (element.tabIndex < 0 && !isOtherTab && !element.disabled) problems.push(`out of reach: ${{said(element)}}`);
}}
for (const picture of root.querySelectorAll("svg[role=img]")) {{
  if (!picture.getAttribute("aria-label")) problems.push(`a picture without words: ${{said(picture)}}`);
}}
for (const element of root.querySelectorAll("*")) {{
  const text = [...element.childNodes].filter((one) => one.nodeType === 3).map((one) => one.data).join("").trim();
  if (!text || !isShown(element) || element.disabled || element.closest("option")) continue;
  const style = getComputedStyle(element);
  const isDrawn = element instanceof SVGElement;
  const ground = behind(isDrawn ? element.closest("svg").parentElement : element);
  const ink = over(rgba(isDrawn ? style.fill : style.color), ground);
  const found = contrast(ink, ground);
  if (found < 4.5) problems.push(`contrast ${{found.toFixed(1)}}: ${{said(element)}}`);
}}
return [...new Set(problems)];
"""


def problems(driver: WebDriver) -> list[str]:
    """What is wrong with the Headrace page that is shown, a line each."""
    problem_lines: Any = driver.execute_script(_SCRIPT)  # type: ignore[no-untyped-call]
    return [str(line) for line in problem_lines]
