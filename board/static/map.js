/* Draws maps: land, ports, ships, links, tracks and events of <div data-map="ID"> from the JSON in <script id="ID">.

   window.fairleadMap(ID).moveShip(id, {latitude, longitude, course, speed, seen}) moves one ship. A map whose JSON changes
   is drawn again, stays where the reader has moved it, and keeps the open popup and the focus. */
"use strict";

(() => {
  const LAND = "/static/vendor/land/land.json";
  const NAMED = 14; // with more ports or ships than this, names show when pointed at
  const PORT_SIDES = ["right", "left", "bottom", "top"]; // where a name stands, best first
  const SHIP_SIDES = ["top", "bottom", "left", "right"];
  const OFFSETS = { right: [7, 0], left: [-7, 0], top: [0, -9], bottom: [0, 9] };
  const TONES = ["good", "warn", "bad", "quiet"];
  const STEPS = 8; // of an arc: Leaflet rounds points to whole pixels, and more of them would make it wobble
  const maps = new Map(); // ID -> Chart
  let land = null;

  const toned = (tone) => (TONES.includes(tone) ? tone : "plain");

  function readLand() {
    const here = document.getElementById("land"); // of a page that is one file
    land ??= here ? Promise.resolve(JSON.parse(here.textContent)) : fetch(LAND).then((answer) => {
      if (!answer.ok) throw new Error(`${LAND}: ${answer.status}`);
      return answer.json();
    });
    return land;
  }

  /* The longitude at which a map of these longitudes is best cut: the middle of the widest gap between them. */
  function cutOf(longitudes) {
    const sorted = longitudes.map((each) => ((each % 360) + 360) % 360).sort((a, b) => a - b);
    if (!sorted.length) return -180;
    let [widest, cut] = [-1, 0];
    sorted.forEach((each, at) => {
      const next = at + 1 < sorted.length ? sorted[at + 1] : sorted[0] + 360;
      if (next - each > widest) [widest, cut] = [next - each, (each + next) / 2];
    });
    // Content that spans little is shown at its usual longitudes, not a world to the east of them.
    const middle = cut + 180;
    return cut - 360 * Math.round(middle / 360);
  }

  /* The same longitude, at most half a world from another. */
  const near = (longitude, other) => longitude + 360 * Math.round((other - longitude) / 360);

  /* Points of a line with no step of more than half a world, beginning within half a world of the middle. */
  function unwrapped(points, middle) {
    let last = middle;
    return points.map(([latitude, longitude]) => {
      last = near(longitude, last);
      return [latitude, last];
    });
  }

  /* Points of the shortest way between two places on the sphere. */
  function arc([lat1, lon1], [lat2, lon2]) {
    const rad = Math.PI / 180;
    const vector = (lat, lon) => [
      Math.cos(lat * rad) * Math.cos(lon * rad),
      Math.cos(lat * rad) * Math.sin(lon * rad),
      Math.sin(lat * rad),
    ];
    const [a, b] = [vector(lat1, lon1), vector(lat2, lon2)];
    const angle = Math.acos(Math.min(1, Math.max(-1, a[0] * b[0] + a[1] * b[1] + a[2] * b[2])));
    if (angle < 0.02 || angle > 3.1) return [[lat1, lon1], [lat2, lon2]];
    const points = [];
    for (let step = 0; step <= STEPS; step += 1) {
      const [p, q] = [Math.sin((1 - step / STEPS) * angle), Math.sin((step / STEPS) * angle)].map((s) => s / Math.sin(angle));
      const [x, y, z] = a.map((each, at) => p * each + q * b[at]);
      points.push([Math.atan2(z, Math.hypot(x, y)) / rad, Math.atan2(y, x) / rad]);
    }
    return points;
  }

  function svg(kind, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /* The class of a line or ship that has a colour of its own, 1 to 4. */
  const coloured = (line) => (line >= 1 && line <= 4 ? ` line-${line}` : "");

  function shipIcon({ course, speed, tone, line }) {
    const turned = Number.isFinite(course) && !(speed < 0.3);
    const shape = turned
      ? svg("path", { d: "M12 1.5 18.5 21 12 17 5.5 21Z", transform: `rotate(${course} 12 12)` })
      : svg("circle", { cx: 12, cy: 12, r: 6 }); // it lies still, or nobody knows its course
    return L.divIcon({
      className: `ship ${toned(tone)}${coloured(line)}`,
      html: svg("svg", { viewBox: "0 0 24 24", width: 24, height: 24, "aria-hidden": "true" }, shape),
      iconSize: [24, 24],
    });
  }

  const SHAPES = {
    port: () => svg("circle", { cx: 8, cy: 8, r: 4.5 }),
    event: () => svg("path", { d: "M8 1.5 14.5 8 8 14.5 1.5 8Z" }),
  };

  function pointIcon(kind, tone) {
    return L.divIcon({
      className: `${kind} ${toned(tone)}`,
      html: svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, SHAPES[kind]()),
      iconSize: [16, 16],
    });
  }

  function line(name, text) {
    const made = document.createElement("p");
    made.className = name;
    made.textContent = text;
    return made;
  }

  /* A text as a tooltip's content: Leaflet would take it for HTML. */
  function plain(text) {
    const made = document.createElement("span");
    made.textContent = text ?? "";
    return made;
  }

  function popup({ name, code, href: address, speed, course, seen }) {
    const href = "exported" in document.body.dataset ? "" : address;
    const made = document.createElement("div");
    const title = line("title", href ? "" : (name ?? code));
    if (href) {
      const link = document.createElement("a");
      link.href = href;
      link.textContent = name ?? code;
      title.append(link);
    }
    made.append(title);
    if (code && code !== name) made.append(line("facts", code));
    const moves = [];
    if (Number.isFinite(speed)) moves.push(`${speed.toFixed(1)} kn`);
    if (Number.isFinite(course)) moves.push(`course ${Math.round(course)}°`);
    if (moves.length) made.append(line("facts", moves.join(", ")));
    if (seen && window.fairlead) made.append(line("facts", `seen ${window.fairlead.timeText(seen)} ${window.fairlead.zoneName()}`));
    return made;
  }

  class Chart {
    constructor(element) {
      this.element = element;
      this.ships = new Map();
      this.names = [];
      this.marks = []; // {marker, key}
      // Inside are things to press, which role img would hide from a screen reader.
      element.setAttribute("role", "group");
      this.map = L.map(element, {
        zoomSnap: 0.25,
        maxZoom: 11,
        worldCopyJump: false,
        maxBoundsViscosity: 1,
        scrollWheelZoom: false,
        zoomAnimation: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
      });
      this.map.attributionControl.setPrefix(false).addAttribution("Natural Earth");
      this.map.setView([20, 0], 1, { animate: false }); // markers have no elements before
      // The wheel moves the page until somebody uses the map.
      this.map.on("focus click", () => this.map.scrollWheelZoom.enable());
      this.map.on("blur mouseout", () => this.map.scrollWheelZoom.disable());
      this.content = L.layerGroup().addTo(this.map);
      this.map.createPane("land").style.zIndex = 200;
      this.resized = new ResizeObserver(() => {
        this.map.invalidateSize({ animate: false });
        if (!this.moved) this.fit();
        this.placeNames();
      });
      this.map.on("moveend", () => this.placeNames());
      this.map.on("dragstart zoomstart", (event) => {
        if (!this.fitting && event.target === this.map) this.moved = true;
      });
    }

    /* Draw what the JSON text holds. */
    draw(text) {
      this.text = text;
      const data = { ports: [], ships: [], links: [], tracks: [], events: [], ...JSON.parse(text) };
      const places = [...data.ports, ...data.ships, ...data.events].filter((each) => Number.isFinite(each.latitude + each.longitude));
      const lines = [...data.links.map((each) => [each.from, each.to]), ...data.tracks.map((each) => each.points)];
      const cut = cutOf([...places.map((each) => each.longitude), ...lines.flat().map((each) => each[1])]);
      this.middle = cut + 180;
      const open = this.marks.find(({ marker }) => marker.isPopupOpen())?.key;
      const focused = this.marks.find(({ marker }) => marker.getElement() === document.activeElement)?.key;
      this.content.clearLayers();
      this.ships.clear();
      this.names = [];
      this.marks = [];
      const points = [];
      const at = (each) => {
        const place = [each.latitude, near(each.longitude, this.middle)];
        points.push(place);
        return place;
      };
      for (const track of data.tracks) {
        const way = unwrapped(track.points, this.middle);
        points.push(...way);
        const look = `track plain${coloured(track.line)}${track.planned ? " planned" : ""}`;
        this.stroke(way, look).bindTooltip(plain(track.name), { sticky: true });
      }
      for (const link of data.links) {
        const way = unwrapped(arc(link.from, link.to), this.middle);
        points.push(...way);
        this.stroke(way, `link ${toned(link.tone)}`).bindTooltip(plain(link.title), { sticky: true });
      }
      const known = (each) => places.includes(each);
      for (const port of data.ports.filter(known)) {
        this.mark(at(port), pointIcon("port", port.tone), port, port.name, data.ports.length <= NAMED ? PORT_SIDES : null);
      }
      for (const event of data.events.filter(known)) {
        this.mark(at(event), pointIcon("event", event.tone), { name: event.label }, event.label, null);
      }
      for (const ship of data.ships.filter(known)) {
        const marker = this.mark(at(ship), shipIcon(ship), ship, ship.name, data.ships.length <= NAMED ? SHIP_SIDES : null);
        marker.setZIndexOffset(500);
        this.ships.set(String(ship.id), { marker, ship });
      }
      this.points = points;
      this.drawLand();
      if (!this.moved) this.fit();
      this.placeNames();
      this.reopen(open);
      this.marks.find(({ key }) => key === focused)?.marker.getElement().focus({ preventScroll: true });
      this.element.dataset.drawn = "content";
    }

    /* Open the popup of a mark, and leave the map where it is. */
    reopen(wanted) {
      const marker = this.marks.find(({ key }) => key === wanted)?.marker;
      if (!marker) return;
      const { options } = marker.getPopup();
      options.autoPan = false;
      marker.openPopup();
      options.autoPan = true;
    }

    fit() {
      this.fitting = true;
      const size = this.map.getSize();
      // Nothing but land and sea is beyond the poles, or a world away from the content.
      this.map.setMaxBounds(null);
      this.map.setMinZoom(0);
      const world = Math.max(0, Math.log2(size.x / 256), Math.log2(size.y / 320));
      if (this.points.length) {
        const room = size.x < 500 ? 32 : 56;
        this.map.fitBounds(L.latLngBounds(this.points), { padding: [room, room], maxZoom: 5, animate: false });
        if (this.map.getZoom() < world) this.map.setView([this.map.getCenter().lat, this.map.getCenter().lng], world, { animate: false });
      } else {
        this.map.setView([20, this.middle], world, { animate: false });
      }
      this.map.setMinZoom(Math.min(world, this.map.getZoom()));
      this.map.setMaxBounds([[-78, this.middle - 270], [84, this.middle + 270]]);
      this.fitting = false;
    }

    /* Put each name where it covers no other name and no mark, and stays within the map; else hide it, the popup has it. */
    placeNames() {
      const { x: width, y: height } = this.map.getSize();
      const named = this.names.map((each) => ({ ...each, at: this.map.latLngToContainerPoint(each.marker.getLatLng()) }));
      const taken = named.map(({ at }) => [at.x - 7, at.y - 7, at.x + 7, at.y + 7]);
      for (const { tooltip, sides, at } of named) {
        const label = tooltip.getElement();
        if (!label) continue;
        const [w, h] = [label.offsetWidth, label.offsetHeight];
        const boxes = {
          right: [at.x + 9, at.y - h / 2, at.x + 9 + w, at.y + h / 2],
          left: [at.x - 9 - w, at.y - h / 2, at.x - 9, at.y + h / 2],
          top: [at.x - w / 2, at.y - 9 - h, at.x + w / 2, at.y - 9],
          bottom: [at.x - w / 2, at.y + 9, at.x + w / 2, at.y + 9 + h],
        };
        const free = ([x1, y1, x2, y2]) =>
          x1 > 0 && x2 < width && y1 > 0 && y2 < height && !taken.some(([a, b, c, d]) => x1 < c && a < x2 && y1 < d && b < y2);
        const side = sides.find((each) => free(boxes[each]));
        label.classList.toggle("crowded", !side);
        if (!side) continue;
        taken.push(boxes[side]);
        tooltip.options.direction = side;
        tooltip.options.offset = L.point(OFFSETS[side]);
        tooltip.update();
      }
    }

    async drawLand() {
      if (this.drawnMiddle === this.middle) return;
      this.drawnMiddle = this.middle;
      let shapes;
      try {
        shapes = await readLand();
      } catch (error) {
        console.error(String(error));
        land = null;
        this.drawnMiddle = undefined;
        return;
      }
      this.landLayer?.remove();
      // As often as the world is wide around the content, so that no part of the view is without land.
      const first = Math.round(this.middle / 360) - 1;
      const copies = [0, 1, 2].map((each) =>
        L.geoJSON(shapes, {
          pane: "land",
          interactive: false,
          style: { className: "land", weight: 0.7, fillOpacity: 1 },
          coordsToLatLng: ([longitude, latitude]) => L.latLng(latitude, longitude + 360 * (first + each)),
        }),
      );
      this.landLayer = L.layerGroup(copies).addTo(this.map);
      this.element.dataset.land = "drawn";
    }

    stroke(points, name) {
      const look = name.startsWith("link") ? { weight: 1.75, smoothFactor: 0 } : { weight: 2.25, smoothFactor: 1 };
      return L.polyline(points, { className: name, ...look }).addTo(this.content);
    }

    mark(place, icon, about, name, sides) {
      const marker = L.marker(place, { icon, riseOnHover: true }).addTo(this.content);
      marker.bindPopup(() => popup(about), { closeButton: true, autoPanPadding: [24, 24] });
      const side = sides?.[0] ?? "right";
      marker.bindTooltip(plain(name), { permanent: sides !== null, direction: side, offset: OFFSETS[side], className: "name" });
      this.marks.push({ marker, key: String(about.id ?? about.code ?? about.name) });
      if (sides) this.names.push({ marker, sides, tooltip: marker.getTooltip() });
      marker.getElement().setAttribute("aria-label", name ?? "");
      return marker;
    }

    /* Move a ship; what the position does not say stays as it was. Return whether the map has the ship. */
    moveShip(id, position) {
      const found = this.ships.get(String(id));
      if (!found || !Number.isFinite(position.latitude + position.longitude)) return false;
      Object.assign(found.ship, position);
      found.marker.setLatLng([position.latitude, near(position.longitude, found.marker.getLatLng().lng)]);
      found.marker.setIcon(shipIcon(found.ship));
      found.marker.getElement().setAttribute("aria-label", found.ship.name ?? "");
      if (found.marker.isPopupOpen()) found.marker.getPopup().update();
      this.placeNames();
      return true;
    }

    /* Where a ship is drawn: {latitude, longitude}, or null. */
    ship(id) {
      const place = this.ships.get(String(id))?.marker.getLatLng();
      return place ? { latitude: place.lat, longitude: place.lng } : null;
    }

    remove() {
      this.resized.disconnect();
      this.map.remove();
    }
  }

  function drawAll() {
    for (const [id, chart] of maps) {
      if (!chart.element.isConnected) {
        chart.remove();
        maps.delete(id);
      }
    }
    for (const element of document.querySelectorAll("[data-map]")) {
      const id = element.dataset.map;
      const text = document.getElementById(id)?.textContent;
      if (!text) continue;
      let chart = maps.get(id);
      if (!chart) {
        chart = new Chart(element);
        maps.set(id, chart);
      }
      if (chart.text !== text) {
        chart.draw(text);
        chart.resized.observe(element);
      }
    }
  }

  window.fairleadMap = (id) => maps.get(id);
  document.addEventListener("fairlead:content", drawAll);
  drawAll();
})();
