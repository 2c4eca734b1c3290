// Small plots over time, drawn as SVG.
import { megabytes } from "/numbers.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [240, 80];

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** Points of `values` over `times`, with the largest value at the top. */
function points(times, values, most) {
  const [first, last] = [times[0], times[times.length - 1]];
  const x = (time) => (last > first ? ((time - first) / (last - first)) * WIDTH : 0);
  return values.map((value, place) => `${x(times[place]).toFixed(1)},${(HEIGHT - 4 - (value / most) * (HEIGHT - 8)).toFixed(1)}`);
}

/** One plot: a line, and a shade behind it. */
function plot(title, number, times, line, area, limits) {
  const figure = document.createElement("figure");
  if (limits) figure.className = "limits";
  const caption = document.createElement("figcaption");
  const told = document.createElement("span");
  told.className = "number";
  told.textContent = number;
  caption.append(limits ? `${title} (limits)` : title, told);
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${number}` });
  if (times.length > 1) {
    if (area) {
      const top = points(times, area.values, area.most || 1);
      picture.append(shape("polygon", { class: "area", points: `0,${HEIGHT} ${top.join(" ")} ${WIDTH},${HEIGHT}` }));
    }
    picture.append(shape("polyline", { class: "line", points: points(times, line.values, line.most || 1).join(" ") }));
  }
  figure.append(caption, picture);
  return figure;
}

/** The plots of a job: each stage's rate and queue, then each device's load and memory. */
export function drawPlots(place, told) {
  const { samples, limit } = told;
  const times = samples.map((sample) => sample.seconds);
  const last = samples[samples.length - 1];
  if (!last) {
    place.replaceChildren();
    return;
  }
  const figures = last.stages.map((stage, n) => {
    const rates = samples.map((sample) => sample.stages[n].items_per_second);
    const queues = samples.map((sample) => sample.stages[n].queue);
    const queue = stage.queue_capacity ? `, ${stage.queue} of ${stage.queue_capacity} wait` : "";
    const number = `${stage.items_per_second.toFixed(1)} /s${queue}`;
    const area = stage.queue_capacity ? { values: queues, most: stage.queue_capacity } : null;
    return plot(stage.name, number, times, { values: rates, most: Math.max(...rates) }, area, limit?.stage === stage.name);
  });
  last.devices.forEach((device, n) => {
    if (device.utilisation === null) return;
    const loads = samples.map((sample) => sample.devices[n]?.utilisation ?? 0);
    const memory = samples.map((sample) => sample.devices[n]?.memory_used_bytes ?? 0);
    const number = `${Math.round(100 * device.utilisation)} % busy, ${megabytes(device.memory_used_bytes)} used`;
    figures.push(plot(device.name, number, times, { values: loads, most: 1 }, { values: memory, most: device.memory_total_bytes }, false));
  });
  place.replaceChildren(...figures);
}
