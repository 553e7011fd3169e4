// Keeps the pages alive. Everything that comes from the machine is put in as text, never as markup.
'use strict';
(() => {
  const by = id => document.getElementById(id);
  const csrf = document.querySelector('meta[name=csrf]').content;
  const make = (name, text, data) => {
    const one = document.createElement(name);
    if (text !== undefined) one.textContent = text;
    Object.assign(one.dataset, data || {});
    return one;
  };
  const put = (one, text) => { if (one && one.textContent !== text) one.textContent = text; };
  const span = ns => ns < 1e3 ? ns + ' ns' : ns < 1e6 ? (ns / 1e3).toPrecision(3) + ' us'
    : ns < 1e9 ? (ns / 1e6).toPrecision(3) + ' ms' : (ns / 1e9).toPrecision(3) + ' s';

  // What is asked before, and what comes of it.
  let resolve = null;
  const dialog = by('ask');
  // The answer is given at once: the event of the end comes later, perhaps when the next question is open already.
  const end = answer => {
    const done = resolve;
    resolve = null;
    dialog.close();
    if (done) done(answer);
  };
  by('yes').onclick = () => end(true);
  by('no').onclick = () => end(false);
  dialog.oncancel = event => { event.preventDefault(); end(false); };
  const sure = text => new Promise(done => {
    put(by('question'), text); resolve = done; dialog.showModal(); by('no').focus();
  });
  const say = (text, bad) => {
    const said = by('said');
    if (!said) return;
    put(said, text);
    if (bad) said.dataset.bad = ''; else delete said.dataset.bad;
  };
  const post = async (path, body) => {
    const answer = await fetch('/api/v1/' + path, {
      method: 'POST', body, headers: { 'content-type': 'application/json', 'x-quietcores-csrf': csrf },
    });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error || 'it failed');
    return told;
  };
  document.querySelectorAll('button[data-post]').forEach(button => button.onclick = async () => {
    if (button.dataset.ask && !await sure(button.dataset.ask)) return;
    const all = document.querySelectorAll('button[data-post]');
    all.forEach(one => one.disabled = true);
    say('...');
    try {
      const deed = await post(button.dataset.post, button.dataset.body || '{}');
      say(deed.said, !deed.done);
    } catch (error) { say(error.message, true); }
    all.forEach(one => one.disabled = false);
  });

  // Two presses compare two runs: A, then B.
  const picks = [...document.querySelectorAll('button.pick')];
  if (picks.length) document.querySelectorAll('#compare .radio').forEach(one => one.hidden = true);
  let first = null;
  const started = row => row.querySelector('a').textContent;
  picks.forEach(button => {
    button.hidden = false;
    button.onclick = () => {
      const row = button.closest('tr');
      if (first && first !== row) {
        location.href = `/compare?a=${encodeURIComponent(first.dataset.run)}&b=${encodeURIComponent(row.dataset.run)}`;
        return;
      }
      first = first ? null : row;
      picks.forEach(one => {
        one.setAttribute('aria-pressed', one === button && !!first);
        put(one, first && one !== button ? 'with this' : 'Compare');
      });
      put(by('picked'), first ? `A is ${started(row)}. Now choose B.` : 'Choose a run A and a run B to compare, or open one.');
    };
  });

  // Blocks by the share of a period, as columns; a column is as high as the logarithm of its count.
  const COLUMNS = 51, SVG = 'http://www.w3.org/2000/svg';
  const bars = (svg, histogram) => {
    if (!svg) return;
    while (svg.children.length < COLUMNS) {
      const at = svg.children.length, bar = document.createElementNS(SVG, 'rect');
      bar.setAttribute('x', 2 * at);
      bar.setAttribute('width', 1.8);
      if (at + 1 === COLUMNS) bar.setAttribute('class', 'late');
      svg.append(bar);
    }
    const sums = new Array(COLUMNS).fill(0);
    histogram.forEach((n, percent) => sums[percent >= 100 ? COLUMNS - 1 : Math.floor(percent * (COLUMNS - 1) / 100)] += n);
    const most = 1 + Math.log10(Math.max(1, ...sums));
    sums.forEach((n, at) => {
      const tall = n ? 30 * (1 + Math.log10(n)) / most : 0;
      svg.children[at].setAttribute('y', (30 - tall).toFixed(2));
      svg.children[at].setAttribute('height', tall.toFixed(2));
    });
  };
  const figure = () => {
    const all = make('figure'), svg = document.createElementNS(SVG, 'svg'), words = make('figcaption');
    all.className = 'loads';
    [['viewBox', '0 0 102 30'], ['preserveAspectRatio', 'none'], ['role', 'img'],
      ['aria-label', 'Blocks by the share of a period that they took, on a logarithmic scale']].forEach(([name, value]) => svg.setAttribute(name, value));
    ['0 %', '50 %', 'a period, and later'].forEach(word => words.append(make('span', word)));
    all.append(svg, words);
    return all;
  };
  // What is alive of an engine, wherever it stands.
  const alive = (card, one) => {
    const s = one.status;
    put(card.querySelector('.told'), one.told);
    card.querySelectorAll('.meters meter').forEach((meter, n) => {
      const level = s.levels[n >> 1];
      if (level) meter.value = n % 2 ? level.output : level.input;
    });
    bars(card.querySelector('.loads svg'), s.load.histogram);
    [['.bypass', one.bypass], ['.mute', one.mute]].forEach(([name, on]) => {
      const button = card.querySelector(name);
      if (button) button.setAttribute('aria-pressed', on);
    });
  };
  const hooks = [];
  window.quietcores = { by, make, put, post, say, span, alive, csrf, hooks };

  if (!by('verdict') && !by('desks')) return;
  const show = (id, on) => { const one = by(id); if (one) one.hidden = !on; };
  const verdict = moment => {
    if (!by('verdict')) return;
    by('verdict').dataset.state = moment.quiet.state;
    put(by('state'), moment.quiet.state);
    // A countdown is no news to be read aloud again and again: it stands on the button.
    put(by('sentence'), moment.quiet.sentence);
    const rest = moment.quiet.wrong.slice(1);
    by('wrong').hidden = !rest.length;
    fill(by('wrong'), rest, text => text, text => make('li', text));
    const shield = moment.shield || {};
    const up = shield.state === 'up', lent = moment.quiet.state === 'lent';
    show('apply', !up);
    show('confirm', shield.confirm != null);
    show('revert', up || shield.state === 'leftover' || shield.state === 'rebooted');
    show('lend', up && !lent);
    show('take-back', lent);
    put(by('left'), shield.confirm == null ? '' : `(${shield.confirm} s left)`);
    show('waits', shield.confirm != null);
    if (by('ends') && shield.confirm != null) by('ends').value = shield.confirm;
  };
  // Puts a list right with as few changes as possible: no flicker, and focus and selection stay.
  const fill = (list, items, key, draw) => {
    if (!list) return;
    items.forEach((item, at) => {
      const is = list.children[at], wanted = key(item);
      if (is && is.dataset.key === wanted) return;
      const fresh = draw(item);
      fresh.dataset.key = wanted;
      if (is) is.replaceWith(fresh); else list.append(fresh);
    });
    while (list.children.length > items.length) list.lastElementChild.remove();
  };
  const who = one => one.ran != null ? `${one.name} ${span(one.ran)}`
    : one.number != null ? `IRQ ${one.number} ${one.name} x${one.times}` : `${one.name} x${one.times}`;
  const cpu = one => {
    const card = make('li', undefined, { cpu: one.id });
    card.className = 'cpu';
    const head = make('h3', `CPU ${one.id} `);
    if (one.shielded) { const tag = make('span', 'shield'); tag.className = 'tag'; head.append(tag); card.dataset.shielded = ''; }
    if (!one.online) card.dataset.off = '';
    const busy = make('p');
    busy.className = 'busy';
    const meter = make('meter');
    meter.max = 1;
    meter.setAttribute('aria-label', `CPU ${one.id} busy`);
    busy.append(meter, ' ', make('span'));
    const list = make('ul');
    list.className = 'who';
    card.append(head, busy, list);
    return card;
  };
  const cpus = moment => {
    const all = moment.cpus.filter(c => c.shielded).concat(moment.cpus.filter(c => !c.shielded));
    fill(by('cpus'), all, c => `${c.id}/${c.shielded}/${c.online}`, cpu);
    all.forEach((one, at) => {
      const card = by('cpus') && by('cpus').children[at];
      if (!card) return;
      card.querySelector('meter').value = one.busy || 0;
      put(card.querySelector('.busy span'), !one.online ? 'off line' : one.busy == null ? '' : Math.round(one.busy * 100) + ' %');
      const more = one.more ? [{ name: `and ${one.more} more`, times: 0, more: true }] : [];
      fill(card.querySelector('.who'), one.occupants.concat(more), o => JSON.stringify(o), o => {
        const line = make('li', o.more ? o.name : who(o));
        if (o.foreign) line.dataset.foreign = '';
        return line;
      });
    });
  };
  const happened = (list, events, most) => {
    if (!list) return;
    events.forEach(event => {
      const none = list.querySelector('.none');
      if (none) none.remove();
      const line = make('li');
      if (['drifted', 'intruder', 'late'].includes(event.kind)) line.dataset.bad = '';
      const time = make('time', event.at.slice(11, 19));
      time.dateTime = event.at;
      line.append(time, ' ' + event.said);
      list.prepend(line);
    });
    while (list.children.length > most) list.lastElementChild.remove();
  };
  const events = moment => {
    happened(by('events'), moment.events, 200);
    happened(by('late'), moment.events.filter(event => event.kind === 'late'), 10);
  };
  const engine = (path, name, button) => async () => {
    const on = button.getAttribute('aria-pressed') !== 'true';
    try { await post('sound', JSON.stringify({ do: path, engine: name, on })); say(`${path} ${on ? 'on' : 'off'}`); }
    catch (error) { say(error.message, true); }
  };
  const wire = card => ['bypass', 'mute'].forEach(path => {
    const button = card.querySelector('.' + path);
    if (button) button.onclick = engine(path, card.dataset.engine, button);
  });
  const sound = one => {
    const card = make('li', undefined, { engine: one.name });
    card.className = 'sound';
    const line = make('p');
    line.className = 'told';
    const meters = make('div');
    meters.className = 'meters';
    one.status.levels.slice(0, 2).forEach((_, at) => ['in', 'out'].forEach(side => {
      const label = make('label', `${side} ${at + 1} `), meter = make('meter');
      Object.assign(meter, { min: -60, max: 0, high: -3 });
      label.append(meter);
      meters.append(label);
    }));
    card.append(make('h3', one.strip), line, meters, figure());
    if (by('sounds').hasAttribute('data-act')) {
      const row = make('div');
      row.className = 'row';
      ['Bypass', 'Mute'].forEach(word => {
        const button = make('button', word);
        button.className = word.toLowerCase();
        row.append(button);
      });
      card.append(row);
      wire(card);
    }
    return card;
  };
  const sounds = moment => {
    const list = by('sounds');
    if (!list) return;
    by('silent').hidden = moment.sounds.length > 0;
    fill(list, moment.sounds, s => `${s.name}/${s.strip}/${s.status.levels.length}`, sound);
    moment.sounds.forEach((one, at) => {
      alive(list.children[at], one);
    });
  };
  // Probes that measure: their readings by length, ten columns a decade from 10 ns on.
  const probe = () => {
    const card = make('li'), line = make('p'), all = make('figure'), svg = document.createElementNS(SVG, 'svg'), words = make('figcaption');
    card.className = 'sound'; line.className = 'told'; all.className = 'loads';
    [['viewBox', '0 0 160 30'], ['preserveAspectRatio', 'none'], ['role', 'img'],
      ['aria-label', 'Readings by their length, logarithmic on both axes']].forEach(([name, value]) => svg.setAttribute(name, value));
    words.append(make('span'), make('span'));
    all.append(svg, words);
    card.append(make('h3'), line, all);
    return card;
  };
  const drawn = (card, one) => {
    put(card.querySelector('h3'), `probe ${one.probe} ${one.label}`);
    put(card.querySelector('.told'), one.told);
    const from = one.bars.findIndex(n => n > 0);
    if (from < 0) return;
    const to = one.bars.findLastIndex(n => n > 0) + 1, some = one.bars.slice(from, to);
    const svg = card.querySelector('svg'), wide = 160 / some.length;
    while (svg.children.length > some.length) svg.lastElementChild.remove();
    while (svg.children.length < some.length) svg.append(document.createElementNS(SVG, 'rect'));
    const most = 1 + Math.log10(Math.max(...some));
    some.forEach((n, at) => {
      const tall = n ? 30 * (1 + Math.log10(n)) / most : 0;
      [['x', wide * at], ['width', wide * 0.9], ['y', 30 - tall], ['height', tall]].forEach(([name, value]) =>
        svg.children[at].setAttribute(name, value.toFixed(2)));
    });
    [from, to].forEach((at, n) => put(words(card)[n], span(Math.round(10 ** (1 + at / 10)))));
  };
  const words = card => card.querySelectorAll('figcaption span');
  const probes = moment => {
    const list = by('probes');
    if (!list) return;
    show('measuring', moment.probes.length > 0);
    fill(list, moment.probes, one => one.name, probe);
    moment.probes.forEach((one, at) => drawn(list.children[at], one));
  };
  document.querySelectorAll('.sound, .desk').forEach(wire);
  window.quietcores.wire = wire;

  // The stream; when the server is away, it is tried again, less and less often up to 5 s.
  let source = null, pause = 500, last = 0;
  // The moment that was seen last: what happens while nobody looks comes with the next one.
  const drawn_at = document.querySelector('[data-after]');
  let seen = drawn_at ? Number(drawn_at.dataset.after) : 0;
  const away = is => by('away').hidden = !is;
  const open = () => {
    source = new EventSource('/api/v1/stream?after=' + seen);
    source.onmessage = message => {
      const moment = JSON.parse(message.data);
      away(false);
      pause = 500;
      last = Date.now();
      seen = moment.number;
      verdict(moment); cpus(moment); events(moment); sounds(moment); probes(moment);
      hooks.forEach(hook => hook(moment));
      put(by('look'), `${moment.look.threads} threads, looked at every ${(moment.look.since / 1e9).toFixed(1)} s; ${(moment.cost * 100).toFixed(1)} % of one CPU for all of this.`);
    };
    source.onerror = () => {
      source.close();
      away(true);
      setTimeout(open, pause);
      pause = Math.min(pause * 2, 5000);
    };
  };
  // Nobody looks: nothing is read for it.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) { if (source) source.close(); } else { open(); }
  });
  open();
})();
