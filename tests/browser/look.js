// Runs inside a page of the book and reports what the tests ask about: formulas, pictures, contrast, links.
() => {
  const article = document.querySelector("article.bd-article, .bd-article");
  const cut = text => text.trim().replace(/\s+/g, " ").slice(0, 60);

  const rgba = color => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return color.startsWith("color(") ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const luminance = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backdrop = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const contrast = () => {          // the least readable text of the article, and how much text was looked at
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    let worst = {ratio: 21, text: ""}, count = 0;
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("style, script, mjx-container")) continue;
      if (element.matches(".headerlink, .copybtn")) continue;      // marks that appear under the mouse
      const style = getComputedStyle(element), behind = backdrop(element);
      const ink = over(rgba(element.closest("svg") ? style.fill : style.color), behind);
      const [dark, light] = [luminance(ink), luminance(behind)].sort((a, b) => a - b);
      const ratio = (light + 0.05) / (dark + 0.05);
      count += 1;
      if (ratio < worst.ratio) worst = {ratio, text: cut(walker.currentNode.data), tag: element.outerHTML.slice(0, 80)};
    }
    return {...worst, count};
  };

  const report = {};
  const math = [...document.querySelectorAll(".math")];
  report.formulas = math.length;
  report.unrendered = math.filter(e => !e.querySelector("mjx-container")).map(e => cut(e.textContent));
  report.mathErrors = [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(e => cut(e.textContent));
  if (document.body.innerText.includes("Math Processing Error")) report.mathErrors.push("Math Processing Error");
  report.withoutAlt = [...article.querySelectorAll("img")].filter(i => !i.alt.trim() || /^_images|\.png$|\.svg$/.test(i.alt)).map(i => i.src);
  report.links = [...document.querySelectorAll("a")].map(a => a.href?.baseVal ? new URL(a.href.baseVal, location).href : a.href).filter(Boolean);
  for (const theme of ["light", "dark"]) {
    document.documentElement.dataset.theme = theme;
    for (const animation of document.getAnimations()) animation.finish();
    report[theme] = contrast();
  }
  document.documentElement.dataset.theme = "light";
  return report;
}
