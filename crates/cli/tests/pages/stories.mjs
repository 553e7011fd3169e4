// Stories of the pages in a real browser: node stories.mjs CHROMIUM ADDRESS [PICTURES]
// Says what it did, a line each, and waits at `do WHAT` for a line on standard input: who started it does it then.
import { chromium } from 'playwright-core';
import axe from 'axe-core';
import readline from 'node:readline';

const [program, address, pictures] = process.argv.slice(2);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async what => { console.log('do ' + what); await lines.next(); };
const fail = why => { throw new Error(why); };
const origin = new URL(address).origin;

const browser = await chromium.launch({ executablePath: program, args: ['--no-sandbox'] });
const errors = [];
const open = async (options, path = '/') => {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on('console', message => {
    // The server is away for a while in one story; that the browser notes.
    if (message.type() === 'error' && !/ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE|ERR_CONNECTION_RESET|ERR_SOCKET/.test(message.text())) errors.push(message.text());
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
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  const bad = found.violations.filter(v => ['serious', 'critical'].includes(v.impact));
  if (bad.length) fail(`${where}: ` + bad.map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 120) + ' ' + n.failureSummary).join('; ')}`).join('\n'));
};
const fits = async (page, where) => {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (over > 0) fail(`${where}: ${over} px stand out on the right`);
};
const sentence = page => page.locator('#sentence');
const desktop = { viewport: { width: 1280, height: 900 }, colorScheme: 'light' };
const phone = { viewport: { width: 390, height: 844 }, colorScheme: 'dark', isMobile: true, hasTouch: true, deviceScaleFactor: 2 };

try {
  for (const [name, options] of [['desktop', desktop], ['phone', phone]]) {
    for (const [path, word] of [['/', 'Live'], ['/machine', 'Machine'], ['/shield', 'Shield'], ['/runs', 'Runs']]) {
      const page = await open(options, path);
      await page.locator('h1').first().waitFor();
      if (path === '/') {
        await sentence(page).filter({ hasText: /No shield is up/ }).waitFor();
        const before = await page.locator('#look').textContent();
        await page.waitForFunction(old => document.getElementById('look').textContent !== old, before);
        await page.locator('.cpu .who li').first().waitFor();
      }
      await fits(page, `${name} ${path}`);
      await lawful(page, `${name} ${path}`);
      await picture(page, `live-${name}-${word.toLowerCase()}`);
      await page.context().close();
    }
    console.log(`seen ${name}`);
  }

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
  await page.locator('#confirm:visible').waitFor({ timeout: 60000 });
  await page.locator('#said').filter({ hasText: /\S{4}/ }).waitFor();
  if (!/s left/.test(await page.locator('#left').textContent())) fail('no countdown');
  await picture(page, 'live-desktop-applied');
  await page.locator('#confirm').click();
  await page.locator('#confirm').waitFor({ state: 'hidden', timeout: 60000 });
  await page.locator('.events li').filter({ hasText: 'the shield stays' }).waitFor({ timeout: 60000 });
  await ask('expect up');
  console.log('applied and confirmed');

  // The server goes, and comes again.
  await ask('stop the server');
  await page.locator('#away:visible').waitFor({ timeout: 60000 });
  await picture(page, 'live-desktop-away');
  await ask('start the server');
  await page.locator('#away').waitFor({ state: 'hidden', timeout: 60000 });
  console.log('lost and regained');
  await page.locator('#revert').click();
  await page.locator('#yes').click();
  await page.locator('#apply:visible').waitFor({ timeout: 60000 });
  await ask('expect none');
  console.log('reverted');
  if (errors.length) fail('the console has errors:\n' + errors.join('\n'));
  console.log('done');
} catch (error) {
  console.log('failed ' + String(error && error.stack || error).replaceAll('\n', '\n  '));
  process.exitCode = 1;
} finally {
  await browser.close();
  process.exit();
}
