(() => {
  const sign = document.getElementById('live'), suffix = document.title.slice(document.querySelector('h1').textContent.length);
  let heard = Date.now(), lost = false;
  // like turns a into b and keeps equal nodes, with their open, focused or selected state.
  const like = (a, b) => {
    if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || a.nodeType === 1 && a.dataset.key !== b.dataset.key) { a.replaceWith(b); return; }
    if (a.nodeType !== 1) { if (a.data !== b.data) a.data = b.data; return; }
    for (const t of b.attributes) if (t.name !== 'open' && a.getAttribute(t.name) !== t.value) a.setAttribute(t.name, t.value);
    for (const t of [...a.attributes]) if (t.name !== 'open' && !b.hasAttribute(t.name)) a.removeAttribute(t.name);
    const is = [...a.childNodes], wanted = [...b.childNodes];
    wanted.forEach((n, i) => { if (is[i]) like(is[i], n); else a.append(n); });
    is.slice(wanted.length).forEach((n) => n.remove());
  };
  const say = () => {
    const seconds = Math.round((Date.now() - heard) / 1000);
    lost = seconds > 10;
    sign.className = lost ? 'hot' : '';
    sign.textContent = lost ? 'NOT LIVE: no update from the agent for ' + seconds + ' s' : 'live';
    document.querySelector('main').classList.toggle('lost', lost);
    document.title = (lost ? 'NOT LIVE: ' : '') + document.querySelector('h1').textContent + suffix;
  };
  const source = new EventSource('live');
  source.onmessage = (e) => {
    heard = Date.now();
    like(document.querySelector('main'), new DOMParser().parseFromString('<main id="main" tabindex="-1">' + e.data + '</main>', 'text/html').querySelector('main'));
    say();
  };
  // Refused, such as by the limit of clients: reload as without a script.
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000); };
  setInterval(say, 1000);
})();
