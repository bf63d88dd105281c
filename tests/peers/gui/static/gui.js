// Pages that ask the API what SaltGUI asks, in the way in which it asks: plain text that is JSON, the
// token in a header, the events by the cookie of the log-in. The menu has the ids of SaltGUI's.

const PAGES = {
  minions: [
    { client: "wheel", fun: "key.list_all" },
    { client: "wheel", fun: "minions.connected" },
    { client: "runner", fun: "manage.versions" },
    { client: "local", fun: "grains.items", tgt: "*", tgt_type: "glob" },
  ],
  keys: [
    { client: "wheel", fun: "key.list_all" },
    { client: "wheel", fun: "key.finger", match: "*" },
  ],
  jobs: [
    { client: "runner", fun: "jobs.list_jobs" },
    { client: "runner", fun: "jobs.active" },
  ],
  options: [{ client: "wheel", fun: "config.values" }],
};

const element = (css) => document.querySelector(css);
let token = "";

async function ask(method, path, parameters) {
  const headers = { Accept: "application/json", "X-Auth-Token": token };
  const body = parameters && JSON.stringify(parameters);
  const response = await fetch(path, { method, headers, body });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

function show(isLoggedIn) {
  element("#login-form").hidden = isLoggedIn;
  element("#header").hidden = !isLoggedIn;
}

element("#login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [username, password, eauth] = ["#username", "#password", "#eauth"].map(
    (css) => element(css).value,
  );
  token = (await ask("POST", "/login", { username, password, eauth })).return[0].token;
  const events = new EventSource("/events");
  events.onmessage = (message) => {
    element("#events").textContent += `${JSON.parse(message.data).tag}\n`;
  };
  show(true);
});

for (const [name, chunks] of Object.entries(PAGES)) {
  element(`#button-${name}1`).addEventListener("click", async () => {
    const answers = await Promise.all(chunks.map((chunk) => ask("POST", "/", chunk)));
    element("#page").textContent = `${name} ${JSON.stringify(answers)}`;
  });
}

element("#button-manual-run").addEventListener("click", () => {
  element(".run-command").hidden = false;
});

element(".run-command [type=submit]").addEventListener("click", async () => {
  const chunk = { client: "local", tgt: element("#target").value, fun: element("#command").value };
  const answer = await ask("POST", "/", chunk);
  element(".output").textContent = JSON.stringify(answer.return[0]);
});

element("#button-logout1").addEventListener("click", async () => {
  await ask("POST", "/logout", {});
  show(false);
});
