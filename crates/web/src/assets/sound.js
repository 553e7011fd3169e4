// The page Sound: knobs, files that are dropped, presets, the tuner.
'use strict';
(() => {
  const { by, make, put, post, say, alive, csrf, hooks } = window.quietcores;
  const desks = by('desks');
  if (!desks) return;
  const may = desks.hasAttribute('data-act');
  const name = desk => desk.dataset.engine;
  const ask = (desk, wish) => post('sound', JSON.stringify({ engine: name(desk), ...wish }));

  // A knob's place on its slider, 0 to 1000, and its value.
  const range = knob => [Number(knob.dataset.low), Number(knob.dataset.high), knob.hasAttribute('data-log')];
  const place = (knob, value) => {
    const [low, high, log] = range(knob);
    const share = log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low || 1);
    return Math.round(1000 * Math.min(1, Math.max(0, share)));
  };
  const value = (knob, place) => {
    const [low, high, log] = range(knob), share = place / 1000;
    if (share <= 0) return low;
    if (share >= 1) return high;
    const exact = log ? low * Math.pow(high / low, share) : low + (high - low) * share;
    if (!exact) return 0;
    const digits = Math.pow(10, Math.floor(Math.log10(Math.abs(exact))) - 3);
    const step = log ? digits : Math.max(digits, Math.pow(10, Math.floor(Math.log10((high - low) / 1000))));
    return Number((Math.round(exact / step) * step).toPrecision(6));
  };
  const parts = knob => ({
    slider: knob.querySelector('input[type=range]'),
    number: knob.querySelector('input[type=number]'),
    toggle: knob.querySelector('input[type=checkbox]'),
  });
  const put_value = (knob, now) => {
    const { slider, number, toggle } = parts(knob);
    if (toggle) { toggle.checked = now >= 0.5; return; }
    const at = place(knob, now);
    if (Number(slider.value) !== at) slider.value = at;
    slider.setAttribute('aria-valuetext', `${now} ${knob.dataset.unit}`);
    if (Number(number.value) !== now) number.value = now;
  };
  // While somebody turns it, what others say of it is not shown.
  const busy = new WeakMap();
  const pending = new Map();
  let timer = null;
  const flush = async () => {
    timer = null;
    const all = [...pending];
    pending.clear();
    for (const [knob, now] of all) {
      try {
        await ask(knob.closest('.desk'), { do: 'set', param: knob.dataset.param, value: now });
        say('');
      } catch (error) { say(error.message, true); busy.delete(knob); }
    }
  };
  const turn = (knob, now) => {
    if (!Number.isFinite(now)) return;
    put_value(knob, now);
    busy.set(knob, Date.now());
    pending.set(knob, now);
    if (!timer) timer = setTimeout(flush, 40);
  };
  const wire_knob = knob => {
    const { slider, number, toggle } = parts(knob);
    if (toggle) { toggle.onchange = () => turn(knob, toggle.checked ? 1 : 0); return; }
    const back = () => turn(knob, Number(knob.dataset.default));
    slider.oninput = () => turn(knob, value(knob, Number(slider.value)));
    slider.ondblclick = back;
    slider.onkeydown = event => {
      if (event.key === 'Delete' || event.key === 'Backspace') { event.preventDefault(); back(); }
    };
    number.onchange = () => {
      const [low, high] = range(knob);
      if (number.value !== '') turn(knob, Math.min(high, Math.max(low, Number(number.value))));
    };
  };

  const drop = async (desk, file) => {
    if (!file) return;
    say(`${file.name} is tried ...`);
    try {
      const answer = await fetch(`/api/v1/drop?engine=${encodeURIComponent(name(desk))}&name=${encodeURIComponent(file.name)}`, {
        method: 'POST', body: file, headers: { 'content-type': 'application/octet-stream', 'x-quietcores-csrf': csrf },
      });
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.error || 'it failed');
      say(told.said);
      await renew();
    } catch (error) { say(error.message, true); }
  };
  const wire_drop = desk => {
    const zone = desk.querySelector('.drop');
    if (!zone) return;
    const chosen = zone.querySelector('input');
    chosen.onchange = async () => { await drop(desk, chosen.files[0]); chosen.value = ''; };
    desk.ondragover = event => { event.preventDefault(); zone.dataset.over = ''; };
    desk.ondragleave = event => { if (!desk.contains(event.relatedTarget)) delete zone.dataset.over; };
    desk.ondrop = event => {
      event.preventDefault();
      delete zone.dataset.over;
      drop(desk, event.dataTransfer.files[0]);
    };
  };
  // A file that misses its place does not take the page away.
  document.addEventListener('dragover', event => event.preventDefault());
  document.addEventListener('drop', event => event.preventDefault());

  const wire_choices = desk => desk.querySelectorAll('button.choose').forEach(button => button.onclick = async () => {
    const field = button.parentElement.querySelector('select, input'), what = field.value.trim();
    if (!what) { say('give a name', true); field.focus(); return; }
    const key = button.dataset.act === 'strip' ? 'name' : 'preset';
    try {
      const answer = await ask(desk, { do: button.dataset.act, [key]: what });
      const left = answer.left_out && answer.left_out.length ? `, without ${answer.left_out.join(', ')}` : '';
      say({ load: `${what} is called${left}`, save: `kept as ${what}`, strip: `${what} sounds` }[button.dataset.act]);
      field.value = '';
      await renew();
    } catch (error) { say(error.message, true); }
  });

  const wire = () => desks.querySelectorAll('.desk').forEach(desk => {
    desk.querySelectorAll('.knob').forEach(wire_knob);
    wire_drop(desk);
    wire_choices(desk);
    window.quietcores.wire(desk);
  });
  // What the server draws of the strip now, in the place of what stands here; focus stays on what has the same name.
  let renewing = false;
  const renew = async () => {
    if (renewing) return;
    renewing = true;
    try {
      const answer = await fetch('/sound');
      const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('desks');
      if (!fresh) return;
      const held = document.activeElement && document.activeElement.id;
      // What somebody has typed or chosen and not sent yet stays.
      const fields = [...desks.querySelectorAll('.row input, .row select')].filter(field => field.id && field.value);
      const typed = fields.map(field => [field.id, field.value]);
      desks.replaceChildren(...[...fresh.childNodes].map(node => document.importNode(node, true)));
      wire();
      typed.forEach(([id, value]) => {
        const field = by(id);
        if (field && (field.localName !== 'select' || [...field.options].some(option => option.value === value))) field.value = value;
      });
      if (held && by(held)) by(held).focus();
    } catch { /* The stream says that the server is away. */ } finally { renewing = false; }
  };

  // Others turn knobs, too.
  // One after the other: a server that is slow is not asked again before it has answered.
  let asking = false;
  const refresh = async () => {
    if (document.hidden || asking) return;
    asking = true;
    for (const desk of desks.querySelectorAll('.desk')) {
      try {
        const answer = await fetch('/api/v1/sound/' + encodeURIComponent(name(desk)));
        if (!answer.ok) continue;
        const told = await answer.json();
        const knobs = [...desk.querySelectorAll('.knob')];
        if (told.params.length !== knobs.length || told.params.some((p, at) => p.name !== knobs[at].dataset.param)) {
          await renew();
          break;
        }
        told.params.forEach((p, at) => {
          const held = Date.now() - (busy.get(knobs[at]) || 0) < 2500 || knobs[at].contains(document.activeElement) && parts(knobs[at]).number === document.activeElement;
          if (!held) put_value(knobs[at], Number(p.value.toPrecision(6)));
        });
      } catch { /* The stream says that the server is away. */ }
    }
    asking = false;
  };
  setInterval(refresh, 2000);

  const NOTES = ['C', 'C#', 'D', 'D#', 'E', 'F', 'F#', 'G', 'G#', 'A', 'A#', 'B'];
  const tuners = (desk, one) => desk.querySelectorAll('.tuner').forEach(tuner => {
    const read = what => {
      const found = (one.readings || []).find(r => r.name === `${tuner.dataset.stage}.${what}`);
      return found && found.value != null ? found.value : 0;
    };
    const note = Math.round(read('note')), cents = read('deviation'), sounds = read('pitch') > 0;
    put(tuner.querySelector('.pitch'), sounds ? NOTES[note % 12] + (Math.floor(note / 12) - 1) : '-');
    tuner.querySelector('meter').value = sounds ? cents : 0;
    put(tuner.querySelector('.cents'), sounds ? `${cents >= 0 ? '+' : ''}${cents.toFixed(0)} cents` : '');
  });
  hooks.push(moment => {
    const all = [...desks.querySelectorAll('.desk')];
    const same = all.length === moment.sounds.length
      && moment.sounds.every((one, at) => all[at].dataset.engine === one.name && all[at].dataset.strip === one.strip);
    if (!same) { renew(); return; }
    moment.sounds.forEach((one, at) => { alive(all[at], one); tuners(all[at], one); });
  });
  wire();
})();
