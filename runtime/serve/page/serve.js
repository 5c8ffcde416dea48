// serve.js - the page of atlas serve: what /ready, /v1/plan and /metrics say, once a second, and a chat. Whatever comes
// from the server or the model goes into the page as text (textContent), never as HTML. The API key is in `key` alone.
(function () {
	'use strict';
	const at = id => document.getElementById(id);
	const PERIOD_MS = 1000, WINDOW_MS = 5000, HISTORY_MS = 120000;
	let key = '', plan = null, names = [], samples = [], rates = [];

	// Requests ------------------------------------------------------------

	class Refused extends Error {
		constructor(status, text) { super(text); this.status = status; }
	}

	async function ask(path, body, signal) {
		const headers = body ? {'Content-Type': 'application/json'} : {};
		if (key) headers.Authorization = 'Bearer ' + key;
		const answer = await fetch(path, {method: body ? 'POST' : 'GET', headers, signal, cache: 'no-store',
			body: body ? JSON.stringify(body) : undefined, credentials: 'omit', redirect: 'error'});
		if (answer.ok) return answer;
		let text = 'status ' + answer.status;
		try { text = (await answer.json()).error.message; } catch (other) { /* no error of this API */ }
		if (answer.status === 401) ask_for_key(key ? text : '');
		throw new Refused(answer.status, text);
	}

	function ask_for_key(why) {
		if (why) at('key-why').textContent = why;
		if (!at('key-form').hidden && !why) return;
		at('key-form').hidden = false;
		key = '';
	}

	at('key-form').addEventListener('submit', event => {
		event.preventDefault();
		key = at('key').value.trim();
		at('key').value = '';
		if (!key) return;
		at('key-form').hidden = true;
		poll_now();
		at('text').focus();
	});

	// The plan ------------------------------------------------------------

	function put_fact(name, value, is_code) {
		const box = document.createElement('div'), dd = document.createElement('dd');
		const dt = box.appendChild(document.createElement('dt'));
		dt.textContent = name;
		(is_code ? dd.appendChild(document.createElement('code')) : dd).textContent = value;
		box.append(dd);
		at('plan').append(box);
	}

	const list = rows => rows.length ? rows.join(', ') : 'none: the reference device takes any';

	function show_plan() {
		at('plan').replaceChildren();
		at('plan-name').textContent = names.join(', ');
		put_fact('Root hash', plan.root, true);
		put_fact('Family', plan.family + ', ' + plan.layers + ' layers, ' + plan.vocab + ' token ids');
		put_fact('Target', plan.target || 'reference device');
		put_fact('Slots', plan.slots + ' of ' + plan.max_context + ' tokens, ' + plan.pages + ' KV pages of ' + plan.page);
		put_fact('Rows of prompts', list(plan.buckets.prefill));
		put_fact('Rows of decode steps', list(plan.buckets.decode));
		put_fact('Drafts', plan.verify_rows > 1 ? 'up to ' + (plan.verify_rows - 1) + ' a step' : 'none');
		put_fact('Signatures', plan.signers.length ? plan.signers.map(s => s.key).join(' ') : 'none', plan.signers.length > 0);
		put_fact('Certificate', !plan.certificate ? 'none' : plan.certificate.holds ? 'holds' : plan.certificate.reason);
		if (plan.receipt_sha256) put_fact('Receipt', plan.receipt_sha256, true);
		show_mode();
	}

	async function read_plan() {
		const models = await (await ask('/v1/models')).json();
		plan = await (await ask('/v1/plan')).json();
		names = models.data.map(m => m.id);
		at('model').replaceChildren(...names.map(name => new Option(name, name)));
		at('model-field').hidden = names.length < 2;
		show_plan();
	}

	// Metrics ------------------------------------------------------------

	function parse(text) {
		const values = new Map();
		for (const line of text.split('\n')) {
			const found = line.match(/^atlas_(\w+)(?:\{(.*)\})? (\S+)$/);
			if (found) values.set(found[1] + (found[2] ? '{' + found[2] + '}' : ''), parseFloat(found[3]));
		}
		return values;
	}

	const get = (sample, name) => sample.values.get(name) || 0;

	// The value under which that share of the window's events lies, in seconds, as histogram_quantile of Prometheus.
	function quantile(then, now, name, share) {
		const rows = [];
		for (const [row, n] of now.values) {
			const found = row.startsWith(name + '_bucket{') ? row.match(/le="([^"]+)"/) : null;
			if (found) rows.push([found[1] === '+Inf' ? Infinity : parseFloat(found[1]), n - get(then, row)]);
		}
		rows.sort((a, b) => a[0] - b[0]);
		const all = rows.length ? rows[rows.length - 1][1] : 0;
		if (!all) return NaN;
		let low = 0, before = 0;
		for (const [high, n] of rows) {
			if (n >= share * all)
				return high === Infinity ? low : low + (high - low) * (share * all - before) / (n - before || 1);
			low = high;
			before = n;
		}
		return low;
	}

	const number = (value, digits) => value.toLocaleString('en', {maximumFractionDigits: digits, minimumFractionDigits: digits});
	const rate = value => number(value, value < 100 ? 1 : 0) + ' tok/s';
	const time = s => !isFinite(s) ? '-' : s < 0.001 ? number(s * 1e6, 0) + ' us' : number(s * 1e3, s < 0.1 ? 2 : 0) + ' ms';

	function show_load(then, now, seconds) {
		const since = name => get(now, name) - get(then, name);
		const made = since('generation_tokens_total') / seconds, waits = get(now, 'requests_waiting');
		at('made').textContent = rate(made);
		at('read').textContent = rate(since('prompt_tokens_total') / seconds);
		at('slots').textContent = get(now, 'slots_used') + ' of ' + get(now, 'slots_total');
		at('waiting').textContent = waits + (get(now, 'requests_aside') ? ', ' + get(now, 'requests_aside') + ' set aside' : '');
		at('pages').textContent = get(now, 'kv_pages_used') + ' of ' + get(now, 'kv_pages_total');
		const of = (name, share) => time(quantile(then, now, name, share));
		at('gaps').textContent = of('inter_token_latency_seconds', .5) + ', 99 % within ' + of('inter_token_latency_seconds', .99);
		at('first').textContent = of('time_to_first_token_seconds', .5);
		at('drafts').textContent = since('drafts_total')
			? number(100 * since('accepted_total') / since('drafts_total'), 0) + ' %' : '-';
		rates.push([now.at, made]);
		rates = rates.filter(r => now.at - r[0] <= HISTORY_MS);
		show_plot(now.at);
	}

	function show_plot(now) {
		const top = Math.max(...rates.map(r => r[1]), 1);
		at('plot-line').setAttribute('points', rates.map(([when, value]) =>
			(240 - 240 * (now - when) / HISTORY_MS).toFixed(1) + ',' + (58 - 56 * value / top).toFixed(1)).join(' '));
		at('plot-top').textContent = rate(top);
		at('plot-desc').textContent = 'now ' + rate(rates[rates.length - 1][1]) + ', at most ' + rate(top);
	}

	function bar(share) {
		const ns = 'http://www.w3.org/2000/svg', box = document.createElement('span'), text = document.createElement('span');
		const svg = document.createElementNS(ns, 'svg'), rect = document.createElementNS(ns, 'rect');
		box.className = 'share';
		svg.setAttribute('class', 'bar');
		svg.setAttribute('viewBox', '0 0 100 10');
		svg.setAttribute('preserveAspectRatio', 'none');
		svg.setAttribute('aria-hidden', 'true');
		rect.setAttribute('width', Math.min(100, 100 * share).toFixed(1));
		rect.setAttribute('height', '10');
		svg.append(rect);
		text.textContent = number(100 * share, 0) + ' %';
		box.append(svg, ' ', text);
		return box;
	}

	// A row a bucket that has run. A step cannot be faster than expected but where launches overlap.
	function show_steps(then, now) {
		const rows = [];
		for (const [name, n] of now.values) {
			const found = name.match(/^step_seconds_count\{(phase="(\w+)",bucket="([\dx]+)")\}$/);
			if (!found || !n) continue;
			const sum = 'step_seconds_sum{' + found[1] + '}', fresh = n - get(then, name);
			const mean = fresh ? (get(now, sum) - get(then, sum)) / fresh : get(now, sum) / n;
			const expected = get(now, 'step_expected_seconds{' + found[1] + '}');
			const makes = expected > 0 && (found[2] === 'decode' || found[2] === 'verify');
			const most = found[3].split('x').reduce((product, n) => product * n, 1); // "4x3": slots, rows of each
			rows.push([found[2], found[3], n.toLocaleString('en'), time(mean), expected > 0 ? time(expected) : '-',
				expected > 0 ? bar(expected / mean) : '-', makes ? number(most / expected, 0) : '-']);
		}
		const heads = at('steps').tHead.rows[0].cells;
		at('steps').tBodies[0].replaceChildren(...rows.map(cells => {
			const tr = document.createElement('tr');
			cells.forEach((cell, i) => {
				const td = document.createElement(i ? 'td' : 'th');
				if (i) td.className = 'n';
				else td.scope = 'row';
				td.dataset.l = heads[i].textContent;
				td.append(cell);
				tr.append(td);
			});
			return tr;
		}));
	}

	function show_metrics(text) {
		const now = {at: performance.now(), values: parse(text)};
		const is_same = samples.length ? get(now, 'prompt_tokens_total') >= get(samples[samples.length - 1], 'prompt_tokens_total') : true;
		const info = Array.from(now.values.keys()).find(name => name.startsWith('plan_info{')) || '';
		if (!is_same || (plan ? !info.includes('root="' + plan.root + '"') : false)) {
			samples = [];
			plan = null; // another process, perhaps with another plan
		}
		samples.push(now);
		while (samples.length > 2 && now.at - samples[1].at >= WINDOW_MS) samples.shift();
		const then = samples[0];
		if (then !== now) {
			show_load(then, now, (now.at - then.at) / 1000);
			show_steps(then, now);
		}
	}

	function show_state(word, kind) {
		if (at('state').textContent !== word) at('state').textContent = word;
		at('state').className = kind;
	}

	async function poll() {
		try {
			const state = await (await fetch('/ready', {cache: 'no-store', credentials: 'omit'})).json();
			show_state(state.status + (state.reason ? ': ' + state.reason : ''), state.status === 'ready' ? 'ok' : 'warn');
			if (at('key-form').hidden) {
				if (!plan) await read_plan();
				show_metrics(await (await ask('/metrics')).text());
			}
		} catch (failure) {
			if (!(failure instanceof Refused)) show_state('the server does not answer', 'bad');
		}
	}

	let timer = 0, is_polling = false;
	async function poll_now() {
		clearTimeout(timer);
		if (is_polling) return;
		is_polling = true;
		await poll();
		is_polling = false;
		if (!document.hidden) timer = setTimeout(poll_now, PERIOD_MS);
	}
	document.addEventListener('visibilitychange', poll_now);

	// Chat ------------------------------------------------------------

	let messages = [], running = null;

	function show_mode() {
		const why = !plan.has_tokenizer ? 'This plan has no tokenizer: it takes token ids, from programs.'
			: !plan.has_chat_template ? 'This plan has no chat template: the model continues a text (/v1/completions).' : '';
		at('talk-why').hidden = !why;
		at('talk-why').textContent = why;
		at('talk-title').textContent = plan.has_chat_template ? 'Chat' : 'Completion';
		at('text-label').textContent = plan.has_chat_template ? 'Message' : 'Text to continue';
		at('clear').textContent = plan.has_chat_template ? 'New chat' : 'Clear';
		at('system-field').hidden = !plan.has_chat_template;
		at('text').disabled = !plan.has_tokenizer;
		show_buttons();
	}

	function show_buttons() {
		at('send').disabled = running !== null || !plan || !plan.has_tokenizer;
		at('stop').disabled = running === null;
		at('clear').disabled = running !== null;
		at('talk').setAttribute('aria-busy', String(running !== null));
	}

	function add_message(role, text) {
		const item = document.createElement('li'), who = document.createElement('strong');
		const body = document.createElement('div'), note = document.createElement('small');
		item.className = role;
		who.textContent = {user: 'You', assistant: 'Model'}[role];
		body.className = 'text';
		body.textContent = text;
		item.append(who, body, note);
		at('talk').append(item);
		at('talk').scrollTop = at('talk').scrollHeight;
		return {item, body, note, thought: null};
	}

	// Reasoning is open until the answer begins.
	function show_reasoning(shown, text) {
		if (!shown.thought) {
			shown.thought = document.createElement('details');
			shown.thought.open = true;
			shown.thought.append(document.createElement('summary'), document.createElement('div'));
			shown.thought.firstChild.textContent = 'Reasoning';
			shown.thought.lastChild.className = 'text dim';
			shown.body.before(shown.thought);
		}
		shown.thought.lastChild.textContent = text;
	}

	// Events of a stream: the text of each `data:` line.
	async function* events(answer) {
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = '';
		for (;;) {
			const {done, value} = await reader.read();
			if (done) return;
			const lines = (rest + value).split('\n');
			rest = lines.pop();
			for (const line of lines)
				if (line.startsWith('data: ')) yield line.slice(6);
		}
	}

	function body_of(text) {
		const body = {model: at('model').value, stream: true, stream_options: {include_usage: true}};
		if (at('most').value) body.max_tokens = Number(at('most').value);
		else if (!plan.has_chat_template) body.max_tokens = 128;
		if (at('heat').value) body.temperature = Number(at('heat').value);
		if (!plan.has_chat_template) return Object.assign(body, {prompt: text});
		const system = at('system').value.trim();
		return Object.assign(body, {messages: (system ? [{role: 'system', content: system}] : []).concat(messages)});
	}

	// Fills the message; what came so far is in `made`, also if this ends by an exception.
	async function stream_into(shown, text, made, signal) {
		const began = performance.now();
		const path = plan.has_chat_template ? '/v1/chat/completions' : '/v1/completions';
		let first = 0, usage = null, finish = null;
		for await (const line of events(await ask(path, body_of(text), signal))) {
			if (line === '[DONE]') break;
			const event = JSON.parse(line);
			if (event.error) throw new Refused(0, event.error.message);
			usage = event.usage || usage;
			const choice = event.choices[0];
			if (!choice) continue;
			const piece = (choice.delta ? choice.delta.content : choice.text) || '';
			const thought = (choice.delta ? choice.delta.reasoning_content : '') || '';
			finish = choice.finish_reason || finish;
			if (piece || thought ? !first : false) first = performance.now();
			if (piece && !made.text && shown.thought) shown.thought.open = false;
			made.text += piece;
			made.reasoning += thought;
			const is_at_end = at('talk').scrollHeight - at('talk').scrollTop - at('talk').clientHeight < 40;
			shown.body.textContent = made.text;
			if (thought) show_reasoning(shown, made.reasoning);
			if (is_at_end) at('talk').scrollTop = at('talk').scrollHeight;
		}
		if (finish === null) throw new Refused(0, 'the stream was cut');
		const n = usage ? usage.completion_tokens : 0, seconds = (performance.now() - (first || began)) / 1000;
		shown.note.textContent = n + ' tokens' + (n > 1 ? ', ' + rate((n - 1) / seconds) + ' after ' + time((first - began) / 1000) : '')
			+ (finish === 'length' ? ', ended by the limit' : '');
	}

	async function send() {
		const text = at('text').value, made = {text: '', reasoning: ''};
		if (running || !plan || !text.trim()) return;
		running = new AbortController();
		show_buttons();
		at('text').value = '';
		const asked = add_message('user', text);
		messages.push({role: 'user', content: text});
		const shown = add_message('assistant', '');
		let is_whole = false;
		try {
			await stream_into(shown, text, made, running.signal);
			is_whole = true;
		} catch (failure) {
			const is_stopped = failure.name === 'AbortError';
			shown.note.textContent = is_stopped ? 'stopped' : failure.message;
			shown.note.className = is_stopped ? '' : 'bad';
			if (!is_stopped) shown.note.setAttribute('role', 'alert');
		}
		if (is_whole || made.text || made.reasoning) {
			messages.push(Object.assign({role: 'assistant', content: made.text},
				made.reasoning ? {reasoning_content: made.reasoning} : {}));
		} else { // nothing was answered: the text may be sent again, and templates refuse two turns of the user
			messages.pop();
			asked.item.classList.add('dim');
			if (!at('text').value) at('text').value = text;
		}
		running = null;
		show_buttons();
		at('text').focus();
	}

	at('talk-form').addEventListener('submit', event => {
		event.preventDefault();
		send();
	});
	at('text').addEventListener('keydown', event => {
		if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
		event.preventDefault();
		send();
	});
	document.addEventListener('keydown', event => {
		if (event.key === 'Escape' ? running : false) running.abort();
	});
	at('stop').addEventListener('click', () => running ? running.abort() : undefined);
	at('clear').addEventListener('click', () => {
		messages = [];
		at('talk').replaceChildren();
		at('text').focus();
	});

	show_buttons();
	poll_now();
})();
