// A name (an option, a path, a metric) is searched as all of its parts, and so is what stands in quotes. The theme would
// exclude a word with a dash before it, and take one before a colon for a field. The index has the same parts: mkdocs.yml.
(() => {
  const { postMessage } = Worker.prototype;
  const name = /"[^"]*"|\S*[-/:=`()[\]{},]\S*/g;
  const parts = (name) => name.split(/[\s"\-/:=`()[\]{},]+/).map((part) => part.replace(/^\W+|\W+$/g, "")).filter(Boolean);
  const all = (name) => parts(name).map((part) => `+${part}*`).join(" ");
  Worker.prototype.postMessage = function (message, ...rest) {
    const query = typeof message?.data === "string";
    return postMessage.call(this, query ? { ...message, data: message.data.replace(name, all) } : message, ...rest);
  };
})();
