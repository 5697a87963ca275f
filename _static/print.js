// Paper is white: a reader in dark mode prints the light theme, and gets the dark one back afterward.
(() => {
  const root = document.documentElement;
  let before = null;
  const print = () => { before ??= root.dataset.theme; root.dataset.theme = "light"; };
  const done = () => { if (before) root.dataset.theme = before; before = null; };
  addEventListener("beforeprint", print);
  addEventListener("afterprint", done);
  matchMedia("print").addEventListener("change", event => (event.matches ? print() : done()));
})();
