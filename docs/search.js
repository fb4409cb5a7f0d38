// The search of the site takes a word with a dash before it as one to exclude: here it may be the name of an option.
(() => {
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (message, ...rest) {
    const query = typeof message?.data === "string";
    return postMessage.call(this, query ? { ...message, data: message.data.replace(/(?<!\S)-+/g, "") } : message, ...rest);
  };
})();
