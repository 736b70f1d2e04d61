/** First in, first out, at constant cost. */
export class Queue<T> {
  #items: T[] = [];
  #taken = 0;

  get length(): number {
    return this.#items.length - this.#taken;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  /** The oldest, which is taken out; `undefined` when there is none. */
  shift(): T | undefined {
    const item = this.#items[this.#taken];
    if (this.#taken < this.#items.length) {
      this.#taken += 1;
      if (this.#taken === this.#items.length) {
        this.clear();
      } else if (this.#taken >= 1024 && this.#taken * 2 > this.#items.length) {
        this.#items = this.#items.slice(this.#taken);
        this.#taken = 0;
      }
    }
    return item;
  }

  clear(): void {
    this.#items = [];
    this.#taken = 0;
  }
}
