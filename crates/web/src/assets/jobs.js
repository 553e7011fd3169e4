// Long work: begun, followed and ended. Everything that is told is put in as text.
'use strict';
(() => {
  const list = document.getElementById('jobs');
  if (!list || !window.quietcores) return;
  const { make, put, post, say } = window.quietcores;
  const followed = new Map();
  const line = job => {
    let one = list.querySelector(`[data-job="${job.id}"]`);
    if (!one) {
      one = make('li', undefined, { job: job.id });
      one.append(make('strong'), ' ', make('span'), ' ', make('span'));
      one.children[1].className = 'state';
      const note = make('p');
      note.className = 'note';
      one.append(note);
      list.prepend(one);
    }
    return one;
  };
  const show = job => {
    const one = line(job);
    one.dataset.state = job.state;
    put(one.querySelector('strong'), job.what);
    const running = job.state === 'running' || job.state === 'ending';
    put(one.querySelector('.state'), running ? `${job.state}, ${job.elapsed} s` + (job.length ? ` of ${job.length} s` : '') : job.state);
    let note = one.querySelector('.note');
    if (!note) { note = make('p'); note.className = 'note'; one.append(note); }
    put(note, job.said.length ? job.said[job.said.length - 1] : '');
    let end = one.querySelector('button');
    if (running && !end && list.hasAttribute('data-act')) {
      end = make('button', 'End it');
      end.onclick = async () => {
        end.disabled = true;
        try { show(await post(`jobs/${job.id}/cancel`, '{}')); } catch (error) { say(error.message, true); }
      };
      one.append(end);
    }
    if (!running && end) end.remove();
    if ((job.result || job.printed) && !one.querySelector('a')) {
      const link = make('a', job.result ? 'its result' : 'its result as JSON');
      link.href = job.result ? '/runs/' + encodeURIComponent(job.result) : `/api/v1/jobs/${job.id}/result`;
      one.insertBefore(link, note);
    }
    if (running) follow(job.id);
  };
  const follow = id => {
    if (followed.has(id)) return;
    const source = new EventSource(`/api/v1/jobs/${id}/events`);
    followed.set(id, source);
    source.onmessage = message => {
      const job = JSON.parse(message.data);
      if (job.state !== 'running' && job.state !== 'ending') { source.close(); followed.delete(id); }
      show(job);
    };
    // A server that was away has forgotten its jobs.
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) followed.delete(id); };
  };
  const form = document.getElementById('work');
  if (form) form.onsubmit = async event => {
    event.preventDefault();
    const what = form.work.value, cpus = form.cpus.value.trim(), seconds = Number(form.seconds.value);
    const wish = { verb: what, with: what === 'prove' ? { pairs: 8 } : { for: `${seconds}s` } };
    if (cpus) wish.with.cpus = cpus;
    say('...');
    try { show(await post('jobs', JSON.stringify(wish))); say(''); } catch (error) { say(error.message, true); }
  };
  fetch('/api/v1/jobs').then(answer => answer.json()).then(jobs => jobs.forEach(show)).catch(() => {});
})();
