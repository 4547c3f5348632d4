/* Draws charts: the panels of <div class="chart" data-chart="ID"> from the JSON in <script id="ID">, one above the other.

   Panels share the time axis and the cursor; what is dragged over is enlarged in all, a double click shows everything.
   Bands and spans are shaded; a legend names the kinds of spans in words. Marks are upright lines with a text, in the
   first panel. Nulls stay gaps. */
"use strict";

(() => {
  const AXIS = 54; // width of the value axes, the same for all, so that panels stand in line
  const KINDS = {
    excursion: "Out of its band",
    gap: "No readings",
    defrost: "Defrost",
    unplugged: "Unplugged",
    other: "Other",
  };
  const TONES = ["good", "warn", "bad", "quiet"];
  const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]]; // lines differ by more than colour
  const charts = new Map(); // ID -> Chart
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const kindOf = (span) => (Object.hasOwn(KINDS, span.kind) ? span.kind : "other");

  function strokeOf(series, at) {
    return colour(TONES.includes(series.tone) ? series.tone : `line-${(at % 4) + 1}`);
  }

  function make(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  }

  const zone = () => window.fairlead?.zone() ?? "UTC";

  function textOf(value) {
    if (value === null || value === undefined) return "–";
    const digits = Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 100 ? 1 : 2;
    return value.toFixed(digits).replace(/\.?0+$/, (zeros) => (zeros.startsWith(".") ? "" : zeros)).replace("-", "−");
  }

  /* Texts of a value axis, all with as many digits as the step between them has. */
  function axisTexts(splits, step) {
    const digits = Math.min(4, /\.(\d+)$/.exec(String(step))?.[1].length ?? 0);
    return splits.map((each) => each.toFixed(digits).replace("-", "−"));
  }

  /* Texts of the time axis: hours, and the day where it begins. */
  function timeTexts(splits, step) {
    const parts = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: zone(), hourCycle: "h23", ...options });
    const hour = parts({ hour: "2-digit", minute: "2-digit" });
    const day = parts({ day: "numeric", month: "short" });
    let last = null;
    return splits.map((each) => {
      const date = new Date(each * 1000);
      const today = day.format(date);
      const text = step >= 86400 ? today : today === last ? hour.format(date) : `${hour.format(date)}\n${today}`;
      last = today;
      return text;
    });
  }

  /* A pattern of slanted lines, for spans that must differ by more than colour. */
  function hatch(ink) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.strokeStyle = ink;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const from of [-8, 0, 8]) {
      pen.moveTo(from - 1, 9);
      pen.lineTo(from + 9, -1);
    }
    pen.stroke();
    return pen.createPattern(tile, "repeat");
  }

  class Chart {
    constructor(element, id) {
      this.element = element;
      this.id = id;
      this.label = element.getAttribute("aria-label") ?? "";
      // The picture is inside, beside a legend that a screen reader reads.
      element.setAttribute("role", "group");
      this.width = 0;
      this.resized = new ResizeObserver(() => {
        const width = Math.floor(element.clientWidth);
        if (width && width !== this.width) {
          this.width = width;
          for (const each of this.plots) each.setSize({ width, height: each.height });
        }
      });
    }

    draw(text) {
      this.text = text;
      this.data = { times: [], panels: [], spans: [], marks: [], ...JSON.parse(text) };
      this.build();
    }

    build() {
      for (const each of this.plots ?? []) each.destroy();
      this.plots = [];
      if (!this.data.times.length) {
        this.element.replaceChildren(make("p", "chart-now", "No readings in this time."));
        this.element.dataset.drawn = zone();
        return;
      }
      const { panels, spans } = this.data;
      this.width = Math.floor(this.element.clientWidth) || 600;
      this.cursorTime = make("span", "when");
      this.fills = Object.fromEntries(
        Object.keys(KINDS).map((kind) => [kind, kind === "gap" ? hatch(colour(`span-${kind}`)) : colour(`span-${kind}`)]),
      );
      const sync = uPlot.sync(this.id);
      const hosts = panels.map((panel, at) => {
        const outputs = panel.series.map(() => make("output", "value"));
        const keys = panel.series.map((series, index) => {
          const key = make("i", "key");
          key.style.borderTopColor = strokeOf(series, index);
          key.style.borderTopStyle = ["solid", "dashed", "dotted", "dashed"][index % 4];
          return make("span", "series", key, series.label, outputs[index]);
        });
        if (panel.band) keys.push(make("span", "series", make("i", "key band"), "band"));
        const unit = panel.unit ? make("span", "unit", panel.unit) : "";
        const head = make("div", "panel-head", make("span", "title", panel.title), unit, make("span", "keys", ...keys));
        const picture = make("div", "picture");
        picture.setAttribute("role", "img");
        picture.setAttribute("aria-label", this.words(panel));
        const host = make("div", "chart-panel", head, picture);
        return { host, picture, outputs, panel, last: at === panels.length - 1 };
      });
      this.element.replaceChildren(make("div", "chart-now", this.cursorTime), ...hosts.map((each) => each.host), this.legend(spans));
      this.plots = hosts.map((each) => new uPlot(this.options(each, sync), this.columns(each.panel), each.picture));
      for (const each of this.plots) sync.sub(each);
      this.showNow(null);
      this.element.dataset.drawn = zone();
    }

    /* What a screen reader says of a panel: from where to where each line goes. */
    words(panel) {
      const lines = panel.series.map(({ label, values }) => {
        const known = values.filter((each) => each !== null);
        if (!known.length) return `${label}: no values`;
        const [low, high] = known.reduce(([a, b], each) => [Math.min(a, each), Math.max(b, each)], [Infinity, -Infinity]);
        return `${label} ${textOf(low)} to ${textOf(high)} ${panel.unit ?? ""}`.trim();
      });
      return `${this.label}. ${panel.title}: ${lines.join("; ")}`;
    }

    columns(panel) {
      const band = panel.band ? [panel.band.high, panel.band.low] : [];
      return [this.data.times, ...band, ...panel.series.map((each) => each.values)];
    }

    options({ outputs, panel, last }, sync) {
      const edge = { stroke: colour("band-edge"), width: 1, points: { show: false } };
      const band = panel.band ? [edge, edge] : [];
      const alone = (u, index) => panel.series[index - 1 - band.length].values.filter((each) => each !== null).length < 3;
      const grid = { stroke: colour("grid"), width: 1 };
      const axis = { stroke: colour("muted"), font: "11px system-ui, sans-serif", grid, ticks: { show: false } };
      return {
        width: this.width,
        height: (this.width < 500 ? 118 : 138) + (last ? 36 : 0),
        padding: [8, 12, last ? 0 : 6, 0],
        legend: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone() === "UTC" ? "Etc/UTC" : zone()),
        cursor: { sync: { key: sync.key, setSeries: false }, y: false, points: { size: 6 }, drag: { x: true, y: false } },
        scales: { x: { time: true }, y: { range: (u, low, high) => this.range(low, high) } },
        bands: panel.band ? [{ series: [1, 2], fill: colour("band") }] : [],
        series: [
          {},
          ...band,
          ...panel.series.map((each, at) => ({
            label: each.label,
            stroke: strokeOf(each, at),
            width: 1.75,
            dash: DASHES[at % 4],
            spanGaps: false,
            points: { show: alone, size: 5 },
          })),
        ],
        axes: [
          { ...axis, show: true, size: last ? 42 : 6, values: (u, splits, a, space, step) => (last ? timeTexts(splits, step) : splits.map(() => "")), space: 72 },
          { ...axis, size: AXIS, space: 26, values: (u, splits, a, space, step) => axisTexts(splits, step) },
        ],
        hooks: {
          drawClear: [(u) => this.shade(u)],
          setCursor: [(u) => this.showValues(u, outputs, panel)],
        },
      };
    }

    range(low, high) {
      if (low === null || high === null) return [0, 1];
      const room = (high - low) * 0.12 || Math.max(1, Math.abs(high) * 0.1);
      return [low - room, high + room];
    }

    shade(u) {
      const { left, top, width, height } = u.bbox;
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(left, top, width, height);
      u.ctx.clip();
      for (const span of this.data.spans) {
        const from = u.valToPos(span.from, "x", true);
        const to = u.valToPos(span.to ?? this.data.times.at(-1), "x", true);
        u.ctx.fillStyle = this.fills[kindOf(span)];
        u.ctx.fillRect(from, top, Math.max(2, to - from), height);
      }
      if (u === this.plots[0] || !this.plots.length) this.mark(u);
      u.ctx.restore();
    }

    /* Draw the marks; a text that would cover another one stays away. */
    mark(u) {
      const { top, height } = u.bbox;
      const scale = uPlot.pxRatio;
      let free = -Infinity;
      u.ctx.strokeStyle = u.ctx.fillStyle = colour("muted");
      u.ctx.lineWidth = scale;
      u.ctx.font = `${11 * scale}px system-ui, sans-serif`;
      u.ctx.setLineDash([3 * scale, 3 * scale]);
      for (const { time, label } of this.data.marks) {
        const x = Math.round(u.valToPos(time, "x", true));
        u.ctx.beginPath();
        u.ctx.moveTo(x, top);
        u.ctx.lineTo(x, top + height);
        u.ctx.stroke();
        if (x < free) continue;
        u.ctx.save();
        u.ctx.translate(x - 4 * scale, top + height - 6 * scale);
        u.ctx.rotate(-Math.PI / 2);
        u.ctx.fillText(label, 0, 0);
        u.ctx.restore();
        free = x + 14 * scale;
      }
      u.ctx.setLineDash([]);
    }

    showValues(u, outputs, panel) {
      const at = u.cursor.idx;
      panel.series.forEach((each, index) => {
        const value = at === null || at === undefined ? "" : textOf(each.values[at]);
        if (outputs[index].textContent !== value) outputs[index].textContent = value;
      });
      if (u === this.plots?.[0]) this.showNow(at === null || at === undefined ? null : this.data.times[at]);
    }

    showNow(time) {
      if (time === null) {
        this.cursorTime.textContent = `Times in ${window.fairlead?.zoneName() ?? "UTC"}`;
        return;
      }
      const inside = this.data.spans.filter((each) => each.from <= time && time <= (each.to ?? Infinity));
      const spans = inside.map((each) => each.label || KINDS[kindOf(each)]);
      this.cursorTime.textContent = [`${window.fairlead?.timeText(time * 1000)} ${window.fairlead?.zoneName()}`, ...spans].join(" · ");
    }

    legend(spans) {
      const kinds = Object.keys(KINDS).filter((kind) => spans.some((each) => kindOf(each) === kind));
      const entries = kinds.map((kind) => {
        const labels = [...new Set(spans.filter((each) => kindOf(each) === kind).map((each) => each.label))].filter(Boolean);
        const shown = labels.length > 3 ? [...labels.slice(0, 3), `${labels.length - 3} more`] : labels;
        const swatch = make("i", `swatch ${kind}`);
        return make("li", "", swatch, make("b", "", KINDS[kind]), shown.length ? make("span", "", shown.join("; ")) : "");
      });
      const list = make("ul", "chart-legend", ...entries);
      list.hidden = !kinds.length;
      return list;
    }

    remove() {
      this.resized.disconnect();
      for (const each of this.plots ?? []) each.destroy();
    }
  }

  function drawAll() {
    for (const [id, chart] of charts) {
      if (!chart.element.isConnected) {
        chart.remove();
        charts.delete(id);
      }
    }
    for (const element of document.querySelectorAll("[data-chart]")) {
      const id = element.dataset.chart;
      const text = document.getElementById(id)?.textContent;
      if (!text) continue;
      let chart = charts.get(id);
      if (!chart) {
        chart = new Chart(element, id);
        charts.set(id, chart);
      }
      if (chart.text !== text) {
        chart.draw(text);
        chart.resized.observe(element);
      }
    }
  }

  const buildAll = () => charts.forEach((each) => each.build());

  window.fairleadChart = (id) => charts.get(id);
  document.addEventListener("fairlead:content", drawAll);
  document.addEventListener("fairlead:times", buildAll);
  dark.addEventListener("change", buildAll);
  drawAll();
})();
