// Bundle the page's script and collect the licenses of what is in it: `npm ci && npm run build`.
import { build } from "esbuild";
import { copyFileSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const assets = "../src/dovetail_report/assets";
const result = await build({
  entryPoints: ["src/main.js"],
  bundle: true,
  minify: !process.env.DOVETAIL_PLAIN,
  format: "iife",
  target: "es2020",
  charset: "ascii",
  legalComments: "none", // the licenses below are whole
  metafile: true,
  outfile: `${assets}/report.js`,
});

const packages = new Set(["@dagrejs/graphlib"]); // inside of dagre's own bundle
for (const input of Object.keys(result.metafile.inputs)) {
  const match = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/);
  if (match) packages.add(match[1]);
}
let text = "The script of this page contains the following libraries.\n";
for (const name of [...packages].sort()) {
  const folder = join("node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf-8"));
  if (license !== "MIT") throw new Error(`${name} is under ${license}, and only MIT is bundled`);
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no license text`);
  text += `\n== ${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf-8").trim()}\n`;
}
writeFileSync(`${assets}/report.LICENSES.txt`, text);
copyFileSync("src/report.css", `${assets}/report.css`);
