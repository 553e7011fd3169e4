// Stories of the pages in a real browser: node stories.mjs CHROMIUM ADDRESS AMP [PICTURES]
// Says what it did, a line each, and waits at `do WHAT` for a line on standard input: who started it does it then.
import { chromium } from 'playwright-core';
import axe from 'axe-core';
import readline from 'node:readline';

import fs from 'node:fs';
const [program, address, amp, pictures] = process.argv.slice(2);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async what => { console.log('do ' + what); return (await lines.next()).value; };
const fail = why => { throw new Error(why); };
const origin = new URL(address).origin;

const browser = await chromium.launch({ executablePath: program, args: ['--no-sandbox'] });
const errors = [];
const open = async (options, path = '/') => {
  const context = await browser.newContext(options);
  // Beside other work a page may take its time; what never comes still fails.
  context.setDefaultTimeout(180000);
  const page = await context.newPage();
  page.on('console', message => {
    // The server is away for a while in one story; that the browser notes.
    // So is a request that was refused and said so on the page.
    if (/409/.test(message.text()) && /api\/v1\/(drop|sound|jobs)/.test(message.location().url)) return;
    // On a machine that is busy for long a page's own questions find no turn; it asks again. The first page may find none either: what is waited
    // for on it, where it is not left for another at once, says whether it came.
    if (/503/.test(message.text()) && /api\/v1\/sound|:[0-9]+\/$/.test(message.location().url)) return;
    if (message.type() === 'error' && !/ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE|ERR_CONNECTION_RESET|ERR_SOCKET/.test(message.text())) errors.push(`${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', error => errors.push(String(error)));
  await page.goto(address);
  if (page.url().includes('token')) fail('the token stayed in the address: ' + page.url());
  if (path !== '/') await page.goto(origin + path);
  return page;
};
const picture = (page, name) => pictures && page.screenshot({ path: `${pictures}/${name}.png`, animations: 'disabled' });
const lawful = async (page, where) => {
  await page.evaluate(axe.source);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'], iframes: false }));
  const bad = found.violations.filter(v => ['serious', 'critical'].includes(v.impact));
  if (bad.length) fail(`${where}: ` + bad.map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 120) + ' ' + n.failureSummary).join('; ')}`).join('\n'));
};
const fits = async (page, where) => {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (over > 0) fail(`${where}: ${over} px stand out on the right`);
};
// Nothing is cut: neither by the window, nor by a box that does not scroll, nor by the edge of a drawing.
const whole = async (page, where) => {
  await fits(page, where);
  const cut = await page.evaluate(() => {
    const wide = document.documentElement.clientWidth, found = [];
    const scrolls = element => ['auto', 'scroll'].includes(getComputedStyle(element).overflowX);
    const within = element => { for (let e = element.parentElement; e; e = e.parentElement) if (scrolls(e)) return true; return false; };
    const told = (element, why) => found.push(`${why}: <${element.tagName.toLowerCase()} class="${element.getAttribute('class') || ''}"> ${element.textContent.trim().slice(0, 60)}`);
    for (const element of document.body.querySelectorAll('*')) {
      const box = element.getBoundingClientRect(), style = getComputedStyle(element);
      if (!box.width || !box.height || style.visibility === 'hidden') continue;
      const drawing = element.ownerSVGElement;
      if (drawing) {
        if (element.tagName !== 'text' || within(drawing)) continue;
        const edge = drawing.getBoundingClientRect();
        if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1 || box.bottom > edge.bottom + 1) told(element, `beyond its drawing (${[box.left - edge.left, edge.right - box.right, box.top - edge.top, edge.bottom - box.bottom].map(Math.round)}) "${drawing.getAttribute('aria-label')}"`);
      } else if (element instanceof HTMLElement && !within(element)) {
        // A table that must be moved sideways hides its last figures.
        if (element.matches('.box') && element.scrollWidth > element.clientWidth + 1) told(element, `${element.scrollWidth} of ${element.clientWidth} px are seen`);
        if (box.right > wide + 1 || box.left < -1) told(element, 'beyond the window');
        // What is hidden from eyes and read aloud is one pixel wide.
        if (['hidden', 'clip'].includes(style.overflowX) && box.width > 2 && element.scrollWidth > element.clientWidth + 1) told(element, 'cut by its box');
      }
    }
    return found;
  });
  if (cut.length) fail(`${where}: cut\n` + cut.slice(0, 20).join('\n'));
};
const sentence = page => page.locator('#sentence');
const soon = async (what, test) => {
  for (const until = Date.now() + 60000; !await test();) {
    if (Date.now() > until) fail('not within a minute: ' + what);
    await new Promise(done => setTimeout(done, 100));
  }
};

// Sound: a knob by keys, back by a double click, by its number; an amp dropped while it plays, a broken one refused; presets; another strip.
const turnTheKnobs = async () => {
  const page = await open(desktop, '/sound');
  const desk = page.locator('.desk[data-strip=story]');
  await desk.waitFor();
  const engine = await desk.getAttribute('data-engine');
  const told = async () => (await page.request.get(`${origin}/api/v1/sound/${engine}`)).json();
  const value = async name => (await told()).params.find(p => p.name === name).value;
  const live = async () => (await (await page.request.get(`${origin}/api/v1/sound`)).json()).find(s => s.name === engine);
  const knob = desk.locator('[data-param="out.gain"]');
  await knob.locator('input[type=range]').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await soon('the knob is turned', async () => await value('out.gain') > -3);
  await knob.locator('input[type=range]').dblclick();
  await soon('it is back', async () => await value('out.gain') === -3);
  await knob.locator('input[type=number]').fill('-12.5');
  await page.keyboard.press('Tab');
  await soon('its number is taken', async () => await value('out.gain') === -12.5);
  await desk.locator('.bypass').click();
  await desk.locator('.bypass[aria-pressed=true]').waitFor();
  await desk.locator('.bypass').click();
  await desk.locator('.bypass[aria-pressed=false]').waitFor();
  console.log('turned');

  const said = page.locator('#said');
  const before = (await live()).status.blocks;
  await desk.locator('input[type=file]').setInputFiles(amp);
  await said.filter({ hasText: 'sounds with it' }).waitFor();
  await soon('it plays on', async () => (await live()).status.blocks > before);
  if (await value('out.gain') !== -12.5) fail('the knob did not stay');
  await desk.locator('input[type=file]').setInputFiles({ name: 'broken.nam', mimeType: 'application/json', buffer: Buffer.from('{"version":') });
  await page.locator('#said[data-bad]').waitFor();
  // By the hand of the mouse, too.
  const text = fs.readFileSync(amp, 'utf8') + ' ';
  const data = await page.evaluateHandle(text => {
    const data = new DataTransfer();
    data.items.add(new File([text], 'dropped.nam'));
    return data;
  }, text);
  await page.locator('.desk[data-strip=story]').dispatchEvent('drop', { dataTransfer: data });
  await said.filter({ hasText: 'dropped.nam' }).filter({ hasText: 'sounds with it' }).waitFor();
  console.log('dropped');

  const choose = (act, field) => desk.locator(`.row:has([data-act=${act}]) ${field}`);
  await choose('save', 'input').fill('loud one');
  // The strip is drawn anew beneath it; what was typed stays.
  await page.evaluate(() => document.querySelector('.desk').dataset.strip = 'drawn before');
  await page.locator('.desk[data-strip=story]').waitFor();
  if (await choose('save', 'input').inputValue() !== 'loud one') fail('what was typed is gone');
  await choose('save', 'button').click();
  await said.filter({ hasText: 'kept as loud one' }).waitFor();
  await choose('load', 'select').selectOption('loud one');
  await choose('load', 'button').click();
  await said.filter({ hasText: 'loud one is called' }).waitFor();
  await lawful(page, 'the strip');
  await picture(page, 'live-desktop-strip');
  await choose('strip', 'select').selectOption('another');
  await choose('strip', 'button').click();
  await page.locator('.desk[data-strip=another]').waitFor();
  await ask('stop the engine');
  await page.locator('#desks .none').waitFor();
  console.log('another strip, and none');
  await page.context().close();
};

// Two presses compare; one opens a report within the page.
const compareTwoRuns = async () => {
  const page = await open(desktop, '/runs');
  await page.locator('button.pick').nth(0).click();
  await page.locator('#picked').filter({ hasText: 'Now choose B' }).waitFor();
  await page.locator('button.pick').nth(1).click();
  await page.locator('h1').filter({ hasText: 'B compared with A' }).waitFor();
  await lawful(page, 'the comparison');
  await page.goto(origin + '/runs');
  await page.locator('table a').first().click();
  await page.frameLocator('iframe.report').locator('h1').first().waitFor();
  await lawful(page, 'a run');
  await picture(page, 'live-desktop-run');
  console.log('compared');
  await page.context().close();
};

// Work is begun on the page, is seen while it measures, is ended by hand, and its result is one press away.
const workAsAJob = async () => {
  const page = await open(desktop, '/tune');
  const begin = async seconds => {
    await page.locator('#work select').selectOption('measure wakeup');
    await page.locator('#work [name=cpus]').fill('0');
    await page.locator('#work [name=seconds]').fill(String(seconds));
    await page.locator('#work button').click();
  };
  await begin(1);
  await page.locator('#jobs li[data-state=done] a').first().waitFor();
  await begin(3600);
  const job = page.locator('#jobs li[data-state=running]');
  await job.waitFor();
  await begin(1);
  await page.locator('#said[data-bad]').filter({ hasText: 'two at a time' }).waitFor();
  const other = await open(phone);
  await other.locator('#probes li .told').filter({ hasText: /readings, median [\d.]+/ }).waitFor();
  await other.locator('#probes svg rect').first().waitFor({ state: 'attached' });
  await fits(other, 'a probe on a phone');
  await lawful(other, 'a probe');
  await picture(other, 'live-phone-probe');
  await lawful(page, 'the page of work');
  await picture(page, 'live-desktop-work');
  await job.locator('button').click();
  await page.locator('#jobs li[data-state=ended]').waitFor();
  await other.locator('#measuring').waitFor({ state: 'hidden' });
  await other.context().close();
  await page.locator('#jobs li[data-state=done] a').first().click();
  await page.frameLocator('iframe.report').locator('h1').first().waitFor();
  console.log('worked');
  // The report alone, on a phone: nothing is cut, the tail can be zoomed, a tap tells a value.
  const report = await open(phone, new URL(page.url()).pathname + '/report');
  await report.locator('h1').first().waitFor();
  await fits(report, 'a report on a phone');
  const zoom = report.locator('details summary').filter({ hasText: 'Zoom on the tail' });
  if (await zoom.count()) {
    await zoom.first().tap();
    await fits(report, 'the tail on a phone');
  }
  const read = report.locator('figure .read').first();
  await report.locator('figure svg.narrow .hit').nth(5).dispatchEvent('pointerdown');
  await read.filter({ hasText: / to / }).waitFor();
  await lawful(report, 'a report');
  await picture(report, 'live-phone-report');
  console.log('read on a phone');
  await report.context().close();
  await page.context().close();
};

// Each kind of page on a phone, as it opens and with all that can be opened.
const readOnAPhone = async () => {
  for (const [name, where] of Object.entries(JSON.parse(process.env.QUIETCORES_REPORTS))) {
    const page = await open(phone);
    await page.goto(where);
    await page.locator('h1').first().waitFor();
    if (!await page.locator('svg, table').count()) fail(`the page of a ${name} shows nothing`);
    await whole(page, `a ${name} on a phone`);
    await lawful(page, `a ${name} on a phone`);
    await picture(page, `report-phone-${name}`);
    await page.evaluate(() => document.querySelectorAll('details').forEach(one => { one.open = true; }));
    await whole(page, `a ${name} on a phone, all of it opened`);
    await page.context().close();
  }
  console.log('every kind of page read on a phone');
};

// Who came onto the shield stands there with name and length: a thread for 2 ms, and a disk's interrupt.
const findWhoIsThere = async page => {
  const events = page.locator('.events li');
  const shown = async (event, began) => {
    await event.first().waitFor();
    return `${await event.first().textContent()} (${Date.now() - began} ms)`;
  };
  if (await ask('place a burst')) {
    const began = Date.now();
    await ask('let it go');
    const said = await shown(events.filter({ hasText: /planted-burst ran [\d.]+ ms/ }), began);
    const ran = Number(/planted-burst ran ([\d.]+) ms/.exec(said)[1]);
    if (!(ran >= 2)) fail('it ran 2 ms at least, and the page says ' + said);
    console.log('found ' + said.replace(/\s+/g, ' '));
    await page.locator('#verdict[data-state=disturbed]').waitFor();
    await picture(page, 'live-desktop-planted');
    await ask('take the burst away');
  } else console.log('nobody can place a burst here');
  const began = Date.now();
  const disk = await ask('write to the disk');
  if (!disk) { console.log('no disk can interrupt this CPU'); return; }
  const irq = events.filter({ hasText: new RegExp('IRQ \\d+ .*' + disk.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')) });
  for (let n = 0; n < 300 && !await irq.count(); n++) {
    await ask('write to the disk');
    await new Promise(done => setTimeout(done, 100));
  }
  console.log('found ' + (await shown(irq, began)).replace(/\s+/g, ' '));
  await ask('leave the disk alone');
};

// Applied and not confirmed: it is put back by itself.
const letItLapse = async page => {
  // Refused, and asked again before the page has come to rest: the second answer counts.
  await page.evaluate(() => ['apply', 'no', 'apply', 'yes'].forEach(id => document.getElementById(id).click()));
  await page.locator('#waits:visible').waitFor();
  const left = Number(await page.locator('#ends').getAttribute('value'));
  if (!(left >= 0 && left <= 30)) fail('the countdown says ' + left);
  await picture(page, 'live-desktop-countdown');
  await page.locator('#apply:visible').waitFor();
  await page.locator('.events li').filter({ hasText: 'the shield was put back' }).first().waitFor();
  await ask('expect none');
  console.log('lapsed');
};
const desktop = { viewport: { width: 1280, height: 900 }, colorScheme: 'light' };
const phone = { viewport: { width: 390, height: 844 }, colorScheme: 'dark', isMobile: true, hasTouch: true, deviceScaleFactor: 2 };

try {
  for (const [name, options] of [['desktop', desktop], ['phone', phone]]) {
    for (const [path, word] of [['/', 'Live'], ['/sound', 'Sound'], ['/machine', 'Machine'], ['/shield', 'Shield'], ['/runs', 'Runs'], ['/tune', 'Tune'], ['/farm', 'Farm']]) {
      const page = await open(options, path);
      await page.locator('h1').first().waitFor();
      if (path === '/') {
        await sentence(page).filter({ hasText: /No shield is up/ }).waitFor();
        const before = await page.locator('#look').textContent();
        await page.waitForFunction(old => document.getElementById('look').textContent !== old, before);
        await page.locator('.cpu .who li').first().waitFor();
      }
      if (path === '/sound') await page.locator('.desk[data-strip=story] .knob').first().waitFor();
      if (path === '/farm') await page.frameLocator('iframe.report').locator('svg, table').first().waitFor();
      await fits(page, `${name} ${path}`);
      await lawful(page, `${name} ${path}`);
      await picture(page, `live-${name}-${word.toLowerCase()}`);
      await page.context().close();
    }
    console.log(`seen ${name}`);
  }

  await turnTheKnobs();
  await compareTwoRuns();
  await workAsAJob();
  await readOnAPhone();

  // By keyboard alone: to the button, the question, no; then yes.
  const page = await open(desktop);
  await page.locator('#apply').focus();
  await page.keyboard.press('Enter');
  await page.locator('dialog[open]').waitFor();
  await lawful(page, 'the question');
  await page.keyboard.press('Enter');
  await page.locator('dialog[open]').waitFor({ state: 'detached' });
  await ask('expect none');
  await page.locator('#apply').focus();
  await page.keyboard.press('Enter');
  await page.locator('dialog[open]').waitFor();
  await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Enter');
  await page.locator('#confirm:visible').waitFor();
  await page.locator('#said').filter({ hasText: /\S{4}/ }).waitFor();
  if (!/s left/.test(await page.locator('#left').textContent())) fail('no countdown');
  await picture(page, 'live-desktop-applied');
  await page.locator('#confirm').click();
  await page.locator('#confirm').waitFor({ state: 'hidden' });
  await page.locator('.events li').filter({ hasText: 'the shield stays' }).waitFor();
  await ask('expect up');
  console.log('applied and confirmed');
  await findWhoIsThere(page);

  // The server goes, and comes again.
  await ask('stop the server');
  await page.locator('#away:visible').waitFor();
  await picture(page, 'live-desktop-away');
  await ask('start the server');
  await page.locator('#away').waitFor({ state: 'hidden' });
  console.log('lost and regained');
  await page.locator('#revert').click();
  await page.locator('#yes').click();
  await page.locator('#apply:visible').waitFor();
  await ask('expect none');
  console.log('reverted');
  await letItLapse(page);
  if (errors.length) fail('the console has errors:\n' + errors.join('\n'));
  console.log('done');
} catch (error) {
  for (const page of browser.contexts().flatMap(context => context.pages())) {
    const said = page.isClosed() ? '' : await page.locator('#said').textContent({ timeout: 1000 }).catch(() => '');
    const events = page.isClosed() ? [] : await page.locator('.events li').allTextContents().catch(() => []);
    console.log(`the page ${page.url()} says "${said}", and lists ${JSON.stringify(events.slice(0, 20))}`);
  }
  console.log('failed ' + String(error && error.stack || error).replaceAll('\n', '\n  '));
  process.exitCode = 1;
} finally {
  await browser.close();
  process.exit();
}
