// Runs inside a page on a narrow screen: how wide the page is, and which parts of the article are cut off at the right edge.
() => {
  const scrolls = element => {          // inside a box that scrolls by itself
    for (let e = element.parentElement; e && e !== document.body; e = e.parentElement)
      if (getComputedStyle(e).overflowX !== "visible") return true;
    return false;
  };
  const offenders = [...document.querySelectorAll(".bd-article-container *, footer *")]
    .filter(e => !e.closest(".bd-sidebar-secondary"))
    .map(e => [e.getBoundingClientRect().right, e])
    .filter(([right, e]) => right > innerWidth + 1 && !scrolls(e))
    .sort((a, b) => b[0] - a[0])
    .slice(0, 5)
    .map(([right, e]) => `${e.tagName.toLowerCase()}.${e.className?.baseVal ?? e.className} to ${Math.round(right)} px`);
  return {wide: document.scrollingElement.scrollWidth, offenders};
}
