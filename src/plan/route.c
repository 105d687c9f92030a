/* route.c - how rows reach other nodes, where nobody says it. */
#include "tutti/plan.h"

tt_route tt_route_choose(tt_route route, const int *owner, int n_owners, const int *node_of_rank)
{
    tt_route best = TT_ROUTE_DIRECT;
    for (int i = 1; i < n_owners && node_of_rank && best == TT_ROUTE_DIRECT; i++) {
        for (int j = 0; j < i; j++) {
            best = node_of_rank[owner[j]] == node_of_rank[owner[i]] ? TT_ROUTE_NODE : best;
        }
    }
    return route == TT_ROUTE_AUTO ? best : route;
}
