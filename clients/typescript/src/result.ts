/** Running a command to its end. */

/** How a command ended, and what it wrote. */
export class Result {}
