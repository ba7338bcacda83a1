// The search box of the guide. INDEX has [title, place, words] of each section; scripts/guide writes it
// before this.
const box = document.querySelector('nav input'), list = document.querySelector('#hits');
box.addEventListener('input', () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = words.length ? INDEX.filter(e => words.every(w => e[2].includes(w))).slice(0, 12) : [];
  list.replaceChildren(...hits.map(([title, at]) => {
    const item = document.createElement('li'), link = document.createElement('a');
    link.href = UP + at; link.textContent = title; item.append(link); return item;
  }));
});
