// One conversation, told to the server whole each time. Whatever anybody wrote is set as text, never as markup.
"use strict";
const $ = id => document.getElementById(id);
const log = $("log"), form = $("form"), words = $("words"), state = $("state");
let said = [], giving = null;

function make(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}

async function ask(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  if (answer.status === 401) { $("door").hidden = false; $("key").focus(); }
  const told = await answer.json().catch(() => ({}));
  throw new Error(told.error?.message || `the server answered ${answer.status}`);
}

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

const down = () => { log.scrollTop = log.scrollHeight; };

async function send(text) {
  $("hint")?.remove();
  const messages = [...said, { role: "user", content: text }];
  const mine = log.appendChild(make("p", "said user", text));
  const box = log.appendChild(make("div", "reply open"));
  const reply = box.appendChild(make("p", "said", ""));
  down();
  busy(true);
  try {
    const body = { model: $("model").value || "macaron", messages, stream: true };
    const answer = await ask("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal: giving.signal });
    let about = null;
    for await (const event of events(answer)) {
      const piece = event.choices[0]?.delta?.content;
      if (piece) { reply.textContent += piece; down(); }
      about = event.macaron ?? about;
    }
    if (!about) throw new Error("the connection ended before the reply did");
    said = [...messages, { role: "assistant", content: reply.textContent }];
    behind(box, about);
    state.textContent = "";
  } catch (error) {
    // A turn that was not delivered has not been: the words go back to where they were typed.
    mine.remove();
    box.remove();
    words.value ||= text;
    state.textContent = error.name === "AbortError" ? "Stopped; nothing of it is kept." : error.message;
    state.className = error.name === "AbortError" ? "" : "bad";
  } finally {
    box.classList.remove("open");
    busy(false);
    down();
  }
}

function behind(box, about) {
  const details = box.appendChild(make("details"));
  const line = details.appendChild(make("summary"));
  about.routes.forEach((route, place) => {
    line.append(place ? ", " : "answered by ", make("b", "", route.label), ` (${route.how}`);
    if (route.how === "routed" && route.probability != null) line.append(`, ${Math.round(100 * route.probability)} %`);
    line.append(")");
  });
  const seconds = about.hops.reduce((sum, hop) => sum + hop.seconds, 0);
  line.append(` · ${seconds.toFixed(1)} s`);
  const table = make("table"), head = table.appendChild(make("tr"));
  for (const name of ["hop", "by", "seconds", "read", "of it cached", "written"]) head.append(make("th", "", name));
  for (const hop of about.hops) {
    const row = table.appendChild(make("tr"));
    const cells = [hop.hop, hop.label, hop.seconds.toFixed(2), hop.prompt_tokens, hop.cached_tokens, hop.generated_tokens];
    for (const cell of cells) row.append(make("td", "", String(cell)));
  }
  const scroll = details.appendChild(make("div", "scroll"));
  scroll.tabIndex = 0;
  scroll.append(table);
  later(details, about.turn, 6);
}

async function later(details, turn, tries) {
  await new Promise(done => setTimeout(done, 1500));
  try {
    const found = await (await ask(`v1/turns/${encodeURIComponent(turn)}`)).json();
    for (const one of found.summaries)
      details.append(make("p", "gist", `others are told (${one.label}, ${one.made}): ${one.content}`));
    if (!found.summaries.length && tries > 1) await later(details, turn, tries - 1);
  } catch { /* the reply stands without it */ }
}

function busy(is) {
  giving = is ? new AbortController() : null;
  $("send").hidden = is;
  $("stop").hidden = !is;
  if (is) { state.className = ""; state.textContent = "…"; } else words.focus();
}

async function names() {
  try {
    const found = await (await ask("v1/models")).json();
    $("model").replaceChildren(...found.data.map(model => make("option", "", model.id)));
    state.textContent = "";
  } catch (error) { state.textContent = error.message; }
}

form.addEventListener("submit", event => {
  event.preventDefault();
  const text = words.value.trim();
  if (!text || giving) return;
  words.value = "";
  send(text);
});
words.addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
});
$("stop").addEventListener("click", () => giving?.abort());
$("key").addEventListener("change", names);
$("again").addEventListener("click", () => { giving?.abort(); said = []; log.replaceChildren(); words.focus(); });
names();
