// The graph: regions as squares, drawn by WebGL; expanded ones as their nodes.

import { NodeSquareProgram } from "@sigma/node-square";
import { DirectedGraph } from "graphology";
import Sigma from "sigma";
import { EdgeArrowProgram, EdgeLineProgram, NodeCircleProgram, NodePointProgram } from "sigma/rendering";
import { Positions, WIDE } from "./positions.js";
import { TileProgram } from "./tiles.js";

const SMALL = 300; // nodes, up to which all regions are expanded at first
const CROWD = 1000; // items, from which on each is one vertex: a triangle each is slow without a GPU
const BOXES = 500; // expanded regions, up to which each has a box
const HIDDEN = 20000; // edges, from which on they are hidden while the graph moves
const MANY = 1000; // edges, from which on they are thin lines without arrows

export class GraphView {
  constructor(container, result, pick) {
    this.result = result;
    this.container = container;
    this.positions = new Positions(result);
    this.expanded = new Set(result.count <= SMALL ? result.regions.keys() : []);
    this.selected = null;
    this.matches = null;
    this.graph = new DirectedGraph();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.fill();
    this.sigma = new Sigma(this.graph, container, {
      defaultNodeType: "circle",
      nodeProgramClasses: { circle: NodeCircleProgram, square: NodeSquareProgram, point: NodePointProgram, tile: TileProgram },
      edgeProgramClasses: { arrow: EdgeArrowProgram, line: EdgeLineProgram },
      itemSizesReference: "positions",
      zoomToSizeRatioFunction: (ratio) => ratio,
      labelRenderedSizeThreshold: 4,
      labelDensity: 1,
      labelGridCellSize: 60,
      labelFont: "system-ui, sans-serif",
      labelSize: 12,
      minEdgeThickness: 1,
      hideLabelsOnMove: true,
      hideEdgesOnMove: this.graph.size > HIDDEN,
      zIndex: true,
      defaultDrawNodeLabel: (context, data, settings) => this.label(context, data, settings),
      defaultDrawNodeHover: (context, data, settings) => this.hover(context, data, settings),
      nodeReducer: (id, data) => this.reduce(id, data),
      ...this.theme(),
    });
    this.backdrop = this.sigma.createCanvasContext("regions", { beforeLayer: "edges" }).canvasContexts?.regions
      ?? this.sigma.getCanvases().regions.getContext("2d");
    this.sigma.on("afterRender", () => this.drawRegions());
    this.sigma.on("clickNode", ({ node }) => pick(node));
    this.sigma.on("doubleClickNode", ({ node, preventSigmaDefault }) => {
      preventSigmaDefault();
      if (node.startsWith("r")) this.toggle(Number(node.slice(1)));
    });
    this.dark.addEventListener("change", () => {
      for (const [key, value] of Object.entries(this.theme())) this.sigma.setSetting(key, value);
    });
  }

  theme() {
    const dark = this.dark.matches;
    return { labelColor: { color: dark ? "#dfe3e8" : "#22262b" }, defaultEdgeColor: dark ? "#6b7480" : "#a9b0b9" };
  }

  /** Draw a label; beside other nodes it is cut where the next one begins. */
  label(context, data, settings) {
    if (!data.label) return;
    context.font = `${settings.labelSize}px ${settings.labelFont}`;
    context.fillStyle = settings.labelColor.color;
    let text = data.label;
    const node = this.graph.getNodeAttributes(data.key);
    const room = node.beside ? (data.size / node.size) * (WIDE - 2 * node.size) - 8 : Infinity;
    const width = context.measureText(text).width;
    if (width > room) text = `${text.slice(0, Math.max(1, Math.floor((text.length * room) / width) - 1))}\u2026`;
    context.fillText(text, data.x + data.size + 3, data.y + settings.labelSize / 3);
  }

  hover(context, data, settings) {
    const text = data.label ?? "";
    context.font = `600 13px ${settings.labelFont}`;
    const width = context.measureText(text).width;
    context.fillStyle = this.dark.matches ? "#2b3036" : "#ffffff";
    context.strokeStyle = this.dark.matches ? "#6b7480" : "#9aa3ad";
    context.beginPath();
    context.rect(data.x + data.size + 2, data.y - 11, width + 12, 22);
    context.fill();
    context.stroke();
    context.fillStyle = this.dark.matches ? "#ffffff" : "#111111";
    context.fillText(text, data.x + data.size + 8, data.y + 4);
  }

  /** Draw a box behind the nodes of each expanded region. */
  drawRegions() {
    const { width, height } = this.sigma.getDimensions();
    const canvas = this.backdrop.canvas;
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.backdrop.setTransform(scale, 0, 0, scale, 0, 0);
    this.backdrop.clearRect(0, 0, width, height);
    if (this.positions.boxes.length > BOXES) return;
    for (const { region, x, y, w, h } of this.positions.boxes) {
      const from = this.sigma.graphToViewport({ x: x - w / 2 - 0.8, y: -(y - h / 2 - 0.7) });
      const to = this.sigma.graphToViewport({ x: x + w / 2 + 2.4, // with the labels on the right
        y: -(y + h / 2 + 0.7) });
      if (to.x < 0 || to.y < 0 || from.x > width || from.y > height) continue;
      const color = this.result.color.get(this.result.regions[region].backend);
      this.backdrop.fillStyle = `${color}1c`;
      this.backdrop.strokeStyle = `${color}66`;
      this.backdrop.beginPath();
      this.backdrop.rect(from.x, from.y, to.x - from.x, to.y - from.y);
      this.backdrop.fill();
      this.backdrop.stroke();
    }
  }

  reduce(id, data) {
    if (id === this.selected) return { ...data, highlighted: true, zIndex: 2 };
    if (this.matches && !this.matches.has(id)) return { ...data, color: this.dark.matches ? "#3a4048" : "#dde1e6", label: "" };
    return data;
  }

  /** What stands for a node: itself, or its region while that is collapsed. */
  shown(node) {
    const region = this.result.nodes.region[node];
    return this.expanded.has(region) ? `n${node}` : `r${region}`;
  }

  fill() {
    const { result, graph } = this;
    graph.clear();
    const places = this.positions.all(this.expanded);
    const size = nodeSize(places, this.container);
    const [square, circle] = places.size > CROWD ? ["tile", "point"] : ["square", "circle"];
    for (const [id, [x, y]] of places) {
      const number = Number(id.slice(1));
      if (id.startsWith("r")) {
        const region = result.regions[number];
        const side = Math.min(1.6, 0.5 + Math.log10(region.nodes) * 0.3);
        const color = result.color.get(region.backend);
        graph.addNode(id, { x, y: -y, size: side, color, type: square, label: `${result.regionTitle(number)} (${region.nodes})` });
      } else {
        const color = result.color.get(result.backend(number));
        graph.addNode(id, { x, y: -y, size, color, type: circle, beside: this.positions.wide.has(result.nodes.region[number]), label: cut(`${result.operator(number)} ${result.name(number)}`) });
      }
    }
    const pairs = result.edges;
    const ends = [];
    const seen = new Set();
    for (let i = 0; i < pairs.length; i += 2) {
      const source = this.shown(pairs[i]);
      const target = this.shown(pairs[i + 1]);
      if (source === target) continue;
      const key = `${source} ${target}`;
      if (seen.has(key)) continue;
      seen.add(key);
      ends.push([source, target]);
    }
    const type = ends.length > MANY ? "line" : "arrow";
    for (const [source, target] of ends) graph.addDirectedEdge(source, target, { type, size: 0.08 });
  }

  rebuild() {
    this.fill();
    this.sigma.setSetting("hideEdgesOnMove", this.graph.size > HIDDEN);
    this.sigma.refresh();
  }

  toggle(region) {
    if (!this.expanded.delete(region)) this.expanded.add(region);
    this.rebuild();
  }

  expandAll(all) {
    this.expanded = new Set(all ? this.result.regions.keys() : []);
    this.rebuild();
    this.sigma.getCamera().animatedReset({ duration: 200 });
  }

  /** Select a node or region, and bring it into view. */
  focus(id, expand = true) {
    if (expand && id.startsWith("n")) {
      const region = this.result.nodes.region[Number(id.slice(1))];
      if (!this.expanded.has(region)) {
        this.expanded.add(region);
        this.rebuild();
      }
    }
    this.select(id);
    const place = this.sigma.getNodeDisplayData(this.present(id));
    if (!place) return;
    const camera = this.sigma.getCamera();
    const { width, height } = this.sigma.getGraphDimensions();
    const ratio = Math.min(1, 24 / Math.max(1, width, height));
    camera.animate({ x: place.x, y: place.y, ratio: Math.min(camera.ratio, ratio) }, { duration: 250 });
  }

  present(id) {
    return this.graph.hasNode(id) ? id : id.startsWith("n") ? this.shown(Number(id.slice(1))) : id;
  }

  select(id) {
    this.selected = id === null ? null : this.present(id);
    this.sigma.refresh({ skipIndexation: true });
  }

  /** Dim everything but these nodes; null shows all alike. */
  mark(nodes) {
    this.matches = nodes === null ? null : new Set(nodes.map((node) => this.shown(node)));
    this.sigma.refresh({ skipIndexation: true });
  }
}

const cut = (text) => (text.length > 32 ? `${text.slice(0, 31)}\u2026` : text);

/** The radius of nodes: small beside their labels, but not less than a pixel where all are in view. */
function nodeSize(places, container) {
  let [left, right, top, bottom] = [0, 0, 0, 0];
  for (const [x, y] of places.values()) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  const pixel = Math.max((right - left) / (container.clientWidth || 1000), (bottom - top) / (container.clientHeight || 700));
  return Math.min(0.45, Math.max(0.22, 1.3 * pixel));
}
