"""The style and script of the timeline page: everything that does not depend on a report."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --panel: #f4f6f8; --line: #d5dae0; --text: #1b2530; --dim: #5c6b7a;
  --passed: #1f7a49; --failed: #d13438; --crashed: #8e1b58; --hung: #a35200; --error: #b3423a; --skipped: #64717f;
  --xfailed: #2f6f98; --not-run: #b9c2cc; --infrastructure: #6b4bb8; --focus: #0b62d6;
  --mark: #c77700; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --back: #12171d; --panel: #1b222b; --line: #35404c; --text: #e6ebf0;
  --dim: #9aa8b6; --passed: #3fae74; --failed: #f0605f; --crashed: #d660a2; --hung: #e09345; --error: #e57c73;
  --skipped: #8c99a6; --xfailed: #6fb0da; --not-run: #6f7c8a; --infrastructure: #a58bf0; --focus: #66a8ff;
  --mark: #f0b04a; --on: #0c1116; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 1500px; margin: 0 auto; padding: 20px 24px 48px; }
h1 { font-size: 22px; margin: 0 8px 0 0; display: inline; } h2 { font-size: 16px; margin: 28px 0 8px; }
.pill { display: inline-block; padding: 1px 9px; border-radius: 10px; font-weight: 600; color: #fff;
  margin-right: 6px; }
.pill.green { background: #22794a; } .pill.red { background: #b4262b; } .pill.open { background: #8a5a00; }
.pill.sim { background: none; color: var(--mark); border: 1px solid var(--mark); }
.facts { color: var(--dim); margin: 6px 0 0; } .facts b { color: var(--text); }
.boxes { list-style: none; margin: 12px 0 0; padding: 0; }
.boxes li { background: var(--panel); border-left: 4px solid var(--line); padding: 6px 10px;
  margin: 4px 0; }
.boxes li.infrastructure { border-color: var(--infrastructure); } .boxes li.red { border-color: var(--failed); }
.bar-tools { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin: 18px 0 8px; }
.bar-tools button { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line);
  border-radius: 5px; padding: 2px 10px; cursor: pointer; }
.bar-tools button[aria-pressed=false] { opacity: .45; text-decoration: line-through; }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
.grow { flex: 1; } kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0 4px; font: 12px monospace; }
.frame { display: flex; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
.names { flex: none; width: 190px; background: var(--panel); border-right: 1px solid var(--line); padding-top: 26px; }
.names div { height: 34px; padding: 0 10px; display: flex; flex-direction: column; justify-content: center;
  border-top: 1px solid var(--line); line-height: 1.2; white-space: nowrap; overflow: hidden; }
.names small { color: var(--dim); overflow: hidden; text-overflow: ellipsis; }
.scroll { flex: 1; overflow-x: auto; } .track { position: relative; min-width: 100%; }
.axis { position: relative; height: 26px; color: var(--dim); font-size: 12px; }
.axis span { position: absolute; top: 5px; padding-left: 4px; border-left: 1px solid var(--line); white-space: nowrap; }
.lane { position: relative; height: 34px; border-top: 1px solid var(--line); }
.t { position: absolute; top: 5px; height: 24px; min-width: 3px; border: 0; padding: 0 4px; border-radius: 3px;
  color: var(--on); font: 12px/24px system-ui, sans-serif; text-align: left; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis; cursor: pointer; box-shadow: inset -1px 0 0 var(--back); }
.bad { background-image: repeating-linear-gradient(135deg, #0003 0 6px, transparent 6px 12px); }
.t:focus, .t.on { outline: 3px solid var(--focus); outline-offset: 1px; z-index: 3; }
.t.off { opacity: .12; }
.passed { background-color: var(--passed); } .failed { background-color: var(--failed); }
.crashed { background-color: var(--crashed); } .hung { background-color: var(--hung); }
.error { background-color: var(--error); } .skipped { background-color: var(--skipped); }
.xfailed { background-color: var(--xfailed); } .not-run { background-color: var(--not-run); }
.infrastructure.t, .infrastructure.dot { background-color: var(--infrastructure); }
.mark { position: absolute; top: 0; bottom: 0; width: 0; border-left: 2px dashed var(--mark); z-index: 2; }
.mark::before { content: "\\25BC"; position: absolute; top: -7px; left: -7px; font-size: 12px;
  color: var(--mark); }
#detail { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 12px 14px;
  margin-top: 12px; min-height: 92px; }
#detail h3 { margin: 0 0 4px; font: 600 14px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { background: var(--back); border: 1px solid var(--line); padding: 8px; overflow: auto; max-height: 420px;
  white-space: pre-wrap; overflow-wrap: anywhere; font: 12px/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 4px 10px 4px 0; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; } td.n { text-align: right;
  font-variant-numeric: tabular-nums; } td code { overflow-wrap: anywhere; font: 12px ui-monospace, monospace; }
input { font: inherit; color: inherit; background: var(--back); border: 1px solid var(--line); border-radius: 5px;
  padding: 3px 8px; min-width: 260px; }
a:focus-visible, button:focus-visible, input:focus-visible { outline: 3px solid var(--focus); outline-offset: 1px; }
@media (max-width: 640px) { .names { width: 96px; } .names small { display: none; } main { padding: 12px; } }
"""

SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const lanes = [...document.querySelectorAll('.lane')].map(lane => [...lane.querySelectorAll('.t')]);
const bars = lanes.flat();
const track = document.querySelector('.track');
const detail = document.getElementById('detail');
const hidden = new Set();
let zoom = 1, kept = null;

function element(name, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  Object.entries(attributes || {}).forEach(([key, value]) => made.setAttribute(key, value));
  return made;
}
function show(index) {
  const test = data[index];
  bars.forEach(bar => bar.classList.toggle('on', Number(bar.dataset.t) === index));
  detail.replaceChildren(element('h3', test.id));
  const line = element('div');
  line.append(element('span', undefined, {class: 'dot ' + test.outcome}), test.summary);
  detail.append(line);
  if (test.reason) detail.append(element('div', test.reason));
  if (test.ranks.length) {
    const table = element('table'), head = element('tr');
    ['rank', 'outcome', 'seconds', 'device', 'reason'].forEach(name => head.append(element('th', name)));
    table.append(head);
    test.ranks.forEach(rank => {
      const row = element('tr');
      rank.forEach(cell => row.append(element('td', cell)));
      table.append(row);
    });
    detail.append(table);
  }
  if (test.output) detail.append(element('pre', test.output, {tabindex: '0'}));
}
function focus(bar) {
  if (!bar) return;
  bars.forEach(one => { one.tabIndex = -1; });
  bar.tabIndex = 0;
  bar.focus();
  bar.scrollIntoView({block: 'nearest', inline: 'nearest'});
}
function visible(bar) { return !bar.classList.contains('off'); }
function nearest(lane, bar) {
  const middle = bar.offsetLeft + bar.offsetWidth / 2;
  return lane.filter(visible).reduce((best, one) => {
    const distance = Math.abs(one.offsetLeft + one.offsetWidth / 2 - middle);
    return !best || distance < best[0] ? [distance, one] : best;
  }, null);
}
function step(bar, key) {
  const at = lanes.findIndex(lane => lane.includes(bar));
  const lane = lanes[at].filter(visible), place = lane.indexOf(bar);
  if (key === 'ArrowRight') return lane[place + 1];
  if (key === 'ArrowLeft') return lane[place - 1];
  if (key === 'Home') return lane[0];
  if (key === 'End') return lane[lane.length - 1];
  const way = key === 'ArrowDown' ? 1 : -1;
  for (let other = at + way; lanes[other]; other += way) {
    const found = nearest(lanes[other], bar);
    if (found) return found[1];
  }
  return null;
}
function nextBad(bar, way) {
  const bad = bars.filter(one => one.classList.contains('bad') && visible(one));
  const unique = bad.filter((one, place) => bad.findIndex(other => other.dataset.t === one.dataset.t) === place)
    .sort((one, other) => one.offsetLeft - other.offsetLeft);
  if (!unique.length) return null;
  const place = bar ? unique.findIndex(one => one.dataset.t === bar.dataset.t) : -1;
  return unique[(place + way + unique.length + (place < 0 && way < 0 ? 1 : 0)) % unique.length];
}
function setZoom(value) {
  zoom = Math.min(Math.max(value, 1), 200);
  track.style.width = (zoom * 100) + '%';
}
bars.forEach((bar, place) => {
  bar.tabIndex = place ? -1 : 0;
  bar.addEventListener('focus', () => { kept = bar; show(Number(bar.dataset.t)); });
  bar.addEventListener('mouseenter', () => show(Number(bar.dataset.t)));
  bar.addEventListener('click', () => focus(bar));
});
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === 'INPUT') return;
  const bar = event.target.classList.contains('t') ? event.target : null;
  if (event.key === 'n' || event.key === 'p') focus(nextBad(bar || kept, event.key === 'n' ? 1 : -1));
  else if (event.key === '+') setZoom(zoom * 1.5);
  else if (event.key === '-') setZoom(zoom / 1.5);
  else if (event.key === '0') setZoom(1);
  else if (bar && /^(Arrow|Home|End)/.test(event.key)) focus(step(bar, event.key));
  else return;
  event.preventDefault();
});
document.querySelectorAll('[data-zoom]').forEach(button => button.addEventListener('click', () => {
  setZoom({in: zoom * 1.5, out: zoom / 1.5, fit: 1}[button.dataset.zoom]);
}));
const rows = [...document.querySelectorAll('tr[data-t]')];
const filter = document.getElementById('filter');
function refresh() {
  const words = filter.value.toLowerCase();
  bars.forEach(bar => bar.classList.toggle('off', !wanted(data[bar.dataset.t], words)));
  rows.forEach(row => { row.hidden = !wanted(data[row.dataset.t], words); });
}
function wanted(test, words) { return !hidden.has(test.outcome) && test.id.toLowerCase().includes(words); }
filter.addEventListener('input', refresh);
document.querySelectorAll('[data-outcome]').forEach(button => button.addEventListener('click', () => {
  const off = button.getAttribute('aria-pressed') === 'true';
  button.setAttribute('aria-pressed', String(!off));
  if (off) hidden.add(button.dataset.outcome); else hidden.delete(button.dataset.outcome);
  refresh();
}));
document.querySelectorAll('a[data-t]').forEach(link => link.addEventListener('click', event => {
  event.preventDefault();
  show(Number(link.dataset.t));
  const bar = bars.find(one => one.dataset.t === link.dataset.t);
  if (bar) focus(bar); else detail.scrollIntoView({block: 'nearest'});
}));
const first = bars.find(bar => bar.classList.contains('bad'));
if (first) show(Number(first.dataset.t));
"""
