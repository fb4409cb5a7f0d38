// Replaces a browser's language that is no language tag ("en-US@posix" under LC_ALL=C): number formats refuse it.

try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}
