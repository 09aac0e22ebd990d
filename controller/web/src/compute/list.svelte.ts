// A list of the API, asked again every five seconds.

import { get, Problem } from '../api'
import { app } from '../app.svelte'

/** A resource; what a view reads of it may be missing. */
export interface Item {
  metadata: { name: string; owner?: string; created_ns?: number; labels?: Record<string, string> }
  spec?: any
  status?: any
  shares?: any[]
}

export class List {
  items = $state.raw<Item[] | null>(null)
  problem = $state<string | null>(null)
  #request = 0

  /** Use while a component is made: it asks as long as that lives. */
  constructor(readonly kind: string, query = '') {
    $effect(() => {
      void Math.floor(app.now / 5000)
      const mine = ++this.#request
      get<{ items: Item[] }>(`/v1/${kind}${query}`).then(
        (answer) => {
          if (mine === this.#request) [this.items, this.problem] = [answer.items, null]
        },
        (error: Error) => {
          if (mine === this.#request) this.problem = error instanceof Problem && error.status === 404 ? `This server has no ${kind}.` : error.message
        }
      )
    })
  }
}
