// Browsers start no worker from a page on the disk. There, a frame takes the worker's place, by the name
// that the theme's search looks for.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html><script>" +
        "self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {" +
        "const script = document.createElement('script'); script.src = url; script.onload = done;" +
        "script.onerror = failed; document.body.append(script); })), Promise.resolve());" +
        "self.postMessage = (data) => parent.dispatchEvent(new CustomEvent('worker', { detail: data }));" +
        "</scr" + "ipt><body><script src='" + url + "'></scr" + "ipt>";
      window.addEventListener("worker", ({ detail }) => {
        const event = new MessageEvent("message", { data: detail });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      });
      this.frame.addEventListener("load", () => {
        this.isReady = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
      document.body.append(this.frame);
    }
    postMessage(data) {
      if (!this.isReady) return void this.waiting.push(data);
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() { this.frame.remove(); }
  };
  window.Worker = window.IFrameWorker;
}
