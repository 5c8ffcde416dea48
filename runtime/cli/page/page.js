// page.js - what a page can do beyond being read: the theme, sorted columns, the filter, and links to what is folded away.
(function () {
	'use strict';
	const root = document.documentElement, each = (list, f) => Array.prototype.forEach.call(list, f);
	root.classList.add('js');

	// Theme: as the system has it, light, dark. A file that may not store it forgets it.
	const themes = ['auto', 'light', 'dark'], button = document.getElementById('theme');
	let theme = 'auto';
	const store = f => { try { return f(window.localStorage); } catch (refused) { return null; } };
	function show_theme() {
		if (theme === 'auto') root.removeAttribute('data-theme');
		else root.setAttribute('data-theme', theme);
		button.textContent = 'Theme: ' + theme;
	}
	const stored = store(s => s.getItem('atlas-theme'));
	if (themes.includes(stored)) theme = stored;
	button.hidden = false;
	button.addEventListener('click', () => {
		theme = themes[(themes.indexOf(theme) + 1) % themes.length];
		store(s => s.setItem('atlas-theme', theme));
		show_theme();
	});
	show_theme();

	// Sorting: up, down, and back to the order of the file, in which rows are in groups.
	const value = cell => cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
	function compare(a, b) {
		const x = parseFloat(a), y = parseFloat(b);
		if (!isNaN(x) ? !isNaN(y) : false) return x - y;
		return a.localeCompare(b, 'en', {numeric: true});
	}
	each(document.querySelectorAll('table.sorts'), table => {
		const heads = table.tHead.rows[0].cells, bodies = Array.from(table.tBodies);
		const order = bodies.map(body => Array.from(body.rows));
		const rows = order.flat().filter(row => !row.classList.contains('group'));
		function sort(column, way) {
			each(heads, (head, i) => head.setAttribute('aria-sort', i === column ? way : 'none'));
			if (way === 'none') {
				bodies.forEach((body, i) => body.append(...order[i]));
			} else {
				const sign = way === 'ascending' ? 1 : -1;
				const keyed = rows.map((row, i) => [value(row.cells[column]), i, row]);
				keyed.sort((a, b) => sign * compare(a[0], b[0]) || a[1] - b[1]);
				bodies[0].append(...keyed.map(k => k[2]));
			}
			table.classList.toggle('sorted', way !== 'none');
			each(table.querySelectorAll('.group'), row => { row.hidden = way !== 'none'; });
			bodies[0].hidden = false;
			filter();
		}
		each(heads, (head, column) => {
			const button = document.createElement('button');
			button.type = 'button';
			button.append(...head.childNodes);
			head.append(button);
			head.setAttribute('aria-sort', 'none');
			button.addEventListener('click', () => {
				const now = head.getAttribute('aria-sort');
				const first = head.classList.contains('n') ? 'descending' : 'ascending';
				const other = first === 'ascending' ? 'descending' : 'ascending';
				sort(column, now === 'none' ? first : now === first ? other : 'none');
			});
		});
	});

	// Filter: launches that have every word. Phases and groups without one are hidden.
	const find = document.getElementById('find');
	let texts = null;
	function filter() {
		if (!find) return;
		const words = find.value.toLowerCase().split(/\s+/).filter(word => word);
		const launches = document.querySelectorAll('.launches tbody tr:not(.group)');
		if (!words.length) {
			if (texts === null) return;
		} else if (texts === null) {
			texts = new Map();
			each(launches, row => {
				const phase = row.closest('.phase').id, group = row.parentNode.querySelector('.group');
				texts.set(row, (phase + ' ' + (group ? group.textContent : '') + ' ' + row.textContent).toLowerCase());
			});
		}
		let n = 0;
		each(launches, row => {
			row.hidden = !words.every(word => texts.get(row).includes(word));
			n += !row.hidden;
		});
		each(document.querySelectorAll('.phase'), phase => {
			phase.hidden = !phase.querySelector('.launches tbody tr:not(.group):not([hidden])');
		});
		each(document.querySelectorAll('.launches:not(.sorted) tbody'), body => {
			body.hidden = !body.querySelector('tr:not(.group):not([hidden])');
		});
		document.getElementById('found').textContent = words.length ? n + ' of ' + launches.length : '';
	}
	if (find) {
		find.parentNode.hidden = false;
		find.addEventListener('input', filter);
	}

	// Links: what they name is unfolded and shown; a launch of a layer that is in a group is that of its first layer.
	function follow() {
		let name = location.hash.slice(1);
		try { name = decodeURIComponent(name); } catch (broken) { return; }
		each(document.querySelectorAll('.at-row'), row => row.classList.remove('at-row', 'at'));
		let at = name ? document.getElementById(name) : null;
		const parts = name.match(/^(.*\/[^/]+)\/(\w+)(\/\d+)?$/);
		if (!at ? parts : false) {
			const layer = document.getElementById(parts[1]);
			const end = '/' + parts[2] + (parts[3] || '');
			at = layer ? Array.from(layer.closest('tbody').rows).find(row => row.id.endsWith(end)) || null : null;
			if (at) at.classList.add('at-row', 'at');
		}
		if (!at) return;
		if (at.closest('[hidden]')) {
			find.value = '';
			filter();
		}
		for (let e = at; e; e = e.parentElement)
			if (e.tagName === 'DETAILS') e.open = true;
		at.scrollIntoView();
	}
	window.addEventListener('hashchange', follow);
	if (location.hash) follow();
})();
