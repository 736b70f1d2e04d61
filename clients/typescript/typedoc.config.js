import { OptionDefaults } from "typedoc";

/** @type {Partial<import("typedoc").TypeDocOptions>} */
export default {
  entryPoints: ["src/index.ts", "src/ai.ts", "src/connect.ts", "src/v1.ts"],
  out: "docs",
  // What the generator of the messages writes.
  blockTags: [...OptionDefaults.blockTags, "@generated"],
  excludeInternal: true,
  excludePrivate: true,
  disableSources: true,
  treatWarningsAsErrors: true,
};
