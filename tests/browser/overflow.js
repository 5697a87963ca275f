// Runs inside a page on a narrow screen: how wide the page is, which parts of the article are cut off at the right edge,
// and which pictures lost their shape when they were made to fit.
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
  const squashed = [...document.querySelectorAll(".bd-article img")]
    .filter(i => i.naturalWidth && i.checkVisibility())
    .filter(i => {
      const style = getComputedStyle(i), inner = side => parseFloat(style[`padding-${side}`]);
      const width = i.clientWidth - inner("left") - inner("right"), height = i.clientHeight - inner("top") - inner("bottom");
      return Math.abs(Math.log((width / height) / (i.naturalWidth / i.naturalHeight))) > 0.03;
    })
    .map(i => i.alt || i.src);
  return {squashed, wide: document.scrollingElement.scrollWidth, offenders};
}
