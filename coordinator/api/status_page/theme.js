// Applies the chosen theme before the first paint; without a choice it is the system's.

(() => {
  const KEY = "tokenwire-theme";
  const changed = () => document.dispatchEvent(new Event("themechange"));

  function apply(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    changed();
  }

  function offerChoice() {
    const select = document.getElementById("theme");
    select.value = localStorage.getItem(KEY) ?? "";
    select.addEventListener("change", () => {
      if (select.value) localStorage.setItem(KEY, select.value);
      else localStorage.removeItem(KEY);
      apply(select.value);
    });
  }

  apply(localStorage.getItem(KEY));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  document.addEventListener("DOMContentLoaded", offerChoice);
})();
