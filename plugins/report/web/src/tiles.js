// Squares drawn as points: one vertex each, so that thousands are fluid where no GPU helps.

import { NodePointProgram } from "sigma/rendering";

const FILL = `
precision mediump float;
varying vec4 v_color;
void main(void) { gl_FragColor = v_color; }
`;

export class TileProgram extends NodePointProgram {
  getDefinition() {
    return { ...super.getDefinition(), FRAGMENT_SHADER_SOURCE: FILL };
  }
}
