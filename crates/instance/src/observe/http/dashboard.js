// Shows /api/dashboard, asked for every two seconds. All text comes from there; charts are of what this page has seen.
'use strict';

const EVERY_MS = 2000;
// Older data is not shown as if it were true.
const STALE_MS = 6000;
const KEPT = 150;
const SVG = 'http://www.w3.org/2000/svg';

const byId = (id) => document.getElementById(id);
const seen = new Map();
let paused = false;
let trouble = '';
let newestUs = 0;
// By this page's own clock: the instance's may differ.
let newestAt = performance.now();

function element(name, attributes, ...children) {
  const made = name === 'svg' || name.startsWith('svg:')
    ? document.createElementNS(SVG, name.replace('svg:', ''))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const fill = (id, ...children) => byId(id).replaceChildren(...children);

function pairs(id, rows) {
  fill(id, ...rows.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
}

// On a narrow screen a row becomes a block, and each cell carries the name of its column.
function table(columns, rows, kind) {
  const head = element('tr', {}, ...columns.map((name) => element('th', { scope: 'col' }, name)));
  const cell = (value, index) => element('td', { 'data-label': columns[index] }, value);
  const body = rows.map((row) => element('tr', {}, ...row.map(cell)));
  return element('table', { class: kind }, element('thead', {}, head), element('tbody', {}, ...body));
}

// `striped`: told apart without colour.
function bar(share, striped) {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  const svg = element('svg', { class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  svg.append(element('svg:rect', { class: 'fill', width, height: 10 }));
  for (let x = 3; striped && x < width; x += 6) {
    svg.append(element('svg:line', { class: 'stripe', x1: x, x2: x, y1: 0, y2: 10 }));
  }
  return svg;
}

function remember(key, value) {
  const values = seen.get(key) || [];
  values.push(value);
  seen.set(key, values.slice(-KEPT));
  return seen.get(key);
}

// What is unknown is a gap in the line, not a zero.
function lines(values, top, kind) {
  const runs = [[]];
  values.forEach((value, index) => {
    if (value === null) runs.push([]);
    else runs.at(-1).push(`${index * 100 / (KEPT - 1)},${38 - value / top * 36}`);
  });
  return runs.filter((run) => run.length).map((run) =>
    element('svg:polyline', { class: kind, points: run.length > 1 ? run.join(' ') : `${run[0]} ${run[0]}` }));
}

// With what it shows and its scale in words.
function chart(label, unit, first, second) {
  const known = [...first, ...(second || [])].filter((value) => value !== null);
  const top = Math.max(...known, Number.MIN_VALUE);
  const scale = known.some((value) => value > 0) ? `, top ${Number(top.toPrecision(3))} ${unit}` : '';
  const note = element('p', { class: 'note' }, `${label}, last 5 minutes${scale}`);
  const svg = element('svg', { class: 'chart', viewBox: '0 0 100 40', preserveAspectRatio: 'none', role: 'img', 'aria-label': label });
  svg.append(element('svg:line', { class: 'limit', x1: 0, x2: 100, y1: 38, y2: 38 }));
  svg.append(...lines(first, top, 'first'), ...(second ? lines(second, top, 'second') : []));
  return [note, svg];
}

function showVerdict(data) {
  const verdict = data.verdict;
  fill('headline', verdict.headline);
  pairs('protection', [
    ['protection configured', verdict.configured],
    ['protection actual', verdict.actual],
    ...(verdict.certificate ? [['certificate', verdict.certificate]] : []),
  ]);
  const tag = (severity) => element('span', { class: `tag ${severity}` }, severity.toUpperCase());
  const found = verdict.findings.map((at) => element('li', {}, tag(at.severity), at.text));
  fill('findings', ...(found.length ? found : [element('li', {}, tag('ok'), 'nothing is wrong')]));
  document.title = `${verdict.severity === 'ok' ? '' : `${verdict.severity.toUpperCase()} `}${data.name} - Standfast`;
}

function showTopology(links) {
  const rows = links.map((link) => [
    `${link.from} → ${link.to}`,
    link.role,
    link.up ? '● up' : '✕ DOWN',
    link.mode,
    [link.state, link.gap && `gap: ${link.gap}`, link.trouble].filter(Boolean).join('; '),
    link.commits,
    link.heard.value === null ? link.heard.text : `${link.heard.text} ago`,
  ]);
  const columns = ['redo', 'role', 'link', 'mode', 'state', 'commits', 'last heard'];
  fill('links', rows.length ? table(columns, rows, 'stack') : 'redo is shipped nowhere');
}

function showStandbys(standbys) {
  const lag = (time, bytes) => (time.text === bytes.text ? time.text : `${time.text} (${bytes.text})`);
  const rows = standbys.map((at) => [
    at.name,
    lag(at.transport_lag, at.transport_lag_bytes),
    lag(at.apply_lag, at.apply_lag_bytes),
    at.receive_rate.text, at.apply_rate.text, at.catch_up.text, at.round_trip.text,
  ]);
  const columns = ['standby', 'transport lag', 'apply lag', 'receives', 'applies', 'caught up in', 'round trip'];
  const shown = standbys.map((at) => {
    const transport = remember(`transport ${at.name}`, at.transport_lag.value);
    const apply = remember(`apply ${at.name}`, at.apply_lag.value);
    return chart(`${at.name}: transport lag ── and apply lag ╌╌`, 's', transport, apply);
  });
  fill('standbys', rows.length ? table(columns, rows, 'stack') : 'no standby', ...shown.flat());
}

function showCommit(commit) {
  pairs('commit', [
    ['commits', commit.commits.text],
    ['wait of a commit', `p50 ${commit.p50.text}, p99 ${commit.p99.text}`],
    ['critical path', commit.critical_path],
  ]);
  const most = Math.max(...commit.parts.map((part) => part.share.value || 0), 0.01);
  const rows = commit.parts.map((part) => [
    part.overlaps ? `${part.name} ∥` : part.name,
    bar((part.share.value || 0) / most, part.overlaps),
    part.share.text, part.mean.text, part.p99.text,
  ]);
  const made = table(['part', '', 'share', 'mean', 'p99'], rows, 'parts');
  fill('parts', made, element('p', { class: 'note' }, '∥ run at the same time: only what was waited for counts'));
}

function showSessions(sessions) {
  pairs('sessions', [['connected', sessions.connected.text], ['processors', sessions.cpus.text]]);
  if (!sessions.active) {
    fill('classes', 'active sessions: unknown');
  } else {
    const all = sessions.active.reduce((sum, at) => sum + at.sessions, 0);
    const most = Math.max(sessions.cpus.value || 1, ...sessions.active.map((at) => at.sessions));
    const rows = sessions.active.filter((at) => at.sessions > 0 || at.class === 'CPU')
      .map((at) => [at.class, bar(at.sessions / most, false), String(at.sessions)]);
    const active = remember('active', all);
    const cpus = active.map(() => sessions.cpus.value);
    fill('classes', table(['wait class', '', 'sessions'], rows, 'plain'),
      ...chart('active sessions ── and processors ╌╌', 'sessions', active, cpus));
  }
  const waits = sessions.threads.map((at) => [at.thread, at.event, at.waited.text]);
  fill('threads', waits.length ? table(['thread', 'waits for', 'so far'], waits, 'plain') : '');
}

function showPressure(pressure) {
  pairs('pressure', [
    ['commits are held up by', pressure.blocked_by || 'nothing'],
    ['commits that wait', pressure.waiting_commits.text],
    ['redo', pressure.redo_rate.text],
    ['log switch every', pressure.switch_interval.text],
    ['current log', `${pressure.sequence.text}, ${pressure.log_filled.text} full`],
    ['logs not archived', pressure.unarchived.text],
    ['room left for redo', pressure.disk_free.text],
  ]);
  const mebibytes = pressure.redo_rate.value === null ? null : pressure.redo_rate.value / 1048576;
  fill('redo', ...chart('redo', 'MiB/s', remember('redo', mebibytes)));
}

function show(data) {
  fill('title', `${data.name}: ${data.role}, ${data.state}`);
  showVerdict(data);
  showTopology(data.topology);
  showStandbys(data.standbys);
  showCommit(data.commit);
  showSessions(data.sessions);
  showPressure(data.pressure);
  const line = (at) => element('li', {}, element('time', {}, at.time), element('span', {}, at.text));
  fill('events', ...data.events.map(line));
}

async function ask() {
  if (paused) return;
  try {
    const answer = await fetch('api/dashboard', { signal: AbortSignal.timeout(STALE_MS) });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const data = await answer.json();
    trouble = '';
    if (data.time_us !== newestUs) {
      newestUs = data.time_us;
      newestAt = performance.now();
    }
    show(data);
  } catch (error) {
    trouble = error.message;
  }
}

// The age is counted here, so that it also grows when nothing comes any more.
function tellAge() {
  const age = performance.now() - newestAt;
  const seconds = `${Math.round(age / 1000)} s`;
  const stale = age > STALE_MS && !paused;
  document.body.classList.toggle('stale', stale);
  byId('lost').hidden = !stale;
  if (stale) {
    const what = newestUs ? `No data from the instance for ${seconds}.` : 'The instance does not answer.';
    byId('lost').textContent = `${what} ${trouble}`;
  }
  if (newestUs) {
    const at = new Date(newestUs / 1000).toISOString().slice(0, 19).replace('T', ' ');
    byId('age').textContent = `${paused ? 'PAUSED, ' : ''}data of ${at} UTC, ${seconds} old`;
  }
}

function pause() {
  paused = !paused;
  byId('pause').setAttribute('aria-pressed', String(paused));
  byId('pause').firstChild.textContent = paused ? 'Resume ' : 'Pause ';
  tellAge();
}

function help() {
  if (byId('help').open) byId('help').close();
  else byId('help').showModal();
}

byId('pause').addEventListener('click', pause);
byId('help-button').addEventListener('click', help);
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === '?') help();
  else if (event.key === 'p') pause();
  else if (event.key >= '1' && event.key <= '7') {
    const part = byId(`part-${event.key}`);
    part.focus({ preventScroll: true });
    part.scrollIntoView({ block: 'start' });
  }
});

setInterval(ask, EVERY_MS);
setInterval(tellAge, 500);
ask();
