// Unpacks the Chromium of the npm package @sparticuz/chromium, with the libraries that a bare
// machine lacks. Arguments: the folder with node_modules, the folder to unpack into.
import { createReadStream } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { pathToFileURL } from "node:url";
import { createBrotliDecompress } from "node:zlib";

const [, , modules, folder] = process.argv;
process.env.TMPDIR = folder;
const require = createRequire(join(modules, "package.json"));
const main = require.resolve("@sparticuz/chromium");
const { default: chromium } = await import(pathToFileURL(main));
await chromium.executablePath();
const tar = createRequire(main)("tar-fs");
const packed = join(modules, "node_modules", "@sparticuz", "chromium", "bin", "al2023.tar.br");
await pipeline(
  createReadStream(packed), createBrotliDecompress(), tar.extract(join(folder, "libraries")),
);
