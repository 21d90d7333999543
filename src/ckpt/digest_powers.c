/* digest_powers.c - powers of x^8, forwards and back, and the choice of a way.
 *
 * A power is the product of the table's entries for the bits that its exponent has. Every entry is the
 * square of the one before it, which test/unit/test_digest.c checks. */
#include <stdatomic.h>
#include <string.h>

#include "ckpt/digest.h"
#include "kernel/kernels.h"

/* [0]: x^(8 * 2^i) for each i; [1]: x^(-8 * 2^i). */
static const fy_pair_t powers[2][64] = {
    {
        {{0x0000000000000100, 0x0000000000000100}}, {{0x0000000000010000, 0x0000000000010000}},
        {{0x0000000100000000, 0x0000000100000000}}, {{0x6a09e667f3bcc96d, 0xbb67ae8584caa753}},
        {{0x054ece09dacb8a4a, 0xf21a26529cb3a7f0}}, {{0xd42e0c370671b8fa, 0x9ac6b99f833732b4}},
        {{0xafd6479eecbc6402, 0x04e0c484775cd517}}, {{0xcbe560ad12cbd4b9, 0x1911477f0463aa2a}},
        {{0x48d166545be06d9f, 0x96108fa4ae98f8ec}}, {{0xea9c5acb0f0d1db2, 0x8ed2ab3c23ee0b5f}},
        {{0xddf199c3985904ed, 0xa308134237489bf4}}, {{0x7586ac61311f6631, 0x97e05aa57db673b6}},
        {{0xff3372604b9e4b13, 0xee8fcdcbfae3b26b}}, {{0xda2bfa71bd0a4caa, 0x503b82fbbb910187}},
        {{0x4ec3df7ba3d8e56a, 0xa29817734aa7b3d8}}, {{0x57d7a62c9926a76f, 0xc79e0c5756c8ffdc}},
        {{0x289ed7e83417b3a5, 0xefed467a2cc039b7}}, {{0x2d5d11510b099a63, 0xde81bd5ee1b8d711}},
        {{0xa609700fe9b1c438, 0xc9dac75f80c14a99}}, {{0x01fb4b127c99121b, 0xc57a4665772b1f05}},
        {{0x5990bb4f29fb3e00, 0x600d52723b99cd52}}, {{0x02b84a1b142fac0e, 0x39a43e9abde75022}},
        {{0x6ecd24f3ba89ee9f, 0xfd5b8853aeb35bf8}}, {{0x8ba2cde767c33825, 0x3b66a760128f5fe9}},
        {{0xc11eb9927434143a, 0xeab961d0d12c4484}}, {{0x8f41f51b79159b0f, 0x9bb961b178c8c6d1}},
        {{0xa0e6658cdde040dd, 0x5ac11f9ce7baab63}}, {{0x5347de0039145f0b, 0xa5c457353f5b015e}},
        {{0x642474dd600c66c0, 0x9ecd275f44b76303}}, {{0x638da2ac291ffee7, 0x0982c1308e1670ea}},
        {{0xd9df1e8313ca6bdc, 0x3ade12620d7c8b1a}}, {{0x322d56581409a321, 0x514979f6f35ebeea}},
        {{0xe8207e4c61e31360, 0xb670c664a4bdc2ab}}, {{0x3297880135d807a8, 0xe5bfe3aee7b356e4}},
        {{0x5c34007bb1bc3e6f, 0xb652b6f71602a7b2}}, {{0x50156d931690b508, 0xab325bf0f866a43c}},
        {{0xebca471144c5bd19, 0xbf55d9752ebc6f7b}}, {{0x5d967d7b2d190252, 0x271cedd4503bb434}},
        {{0x0e63317a8b0ffb4e, 0xb86e715d85f04d17}}, {{0xceb8c7aba8160c60, 0x739cc4aa6c00a85f}},
        {{0x17f9ad2418b7e4e4, 0x161d898569b8b5a3}}, {{0xf75afc5b3c2dc8cc, 0x015cbf8b04f93984}},
        {{0x040fa895d045bccf, 0x14fb22be9d699d14}}, {{0x4907eadea0f8e2cc, 0xa770ea1b5b8ca9b3}},
        {{0x2964e9f67bf213e4, 0x25174c38c083c0f0}}, {{0x503728da238e3251, 0x87a466d4403de699}},
        {{0x525a1b7f7d34fd6e, 0xc367abc987495fcb}}, {{0xc9afaf1c6ab9d359, 0x621c84694323f221}},
        {{0x0c0ea852688968dd, 0x2fa8c297fcf97a4c}}, {{0xe135c8b0cdda515e, 0xade34d2397cb1c69}},
        {{0x5d7deace8b2748e2, 0x095c5e6fe4ac60e3}}, {{0x5a3e2428a02ac368, 0x11d06e3768a372c5}},
        {{0xadf36b8faca572cf, 0xfeb793914b7d1bd5}}, {{0x80f7e1c4c8e587a0, 0xad2f3603506761a2}},
        {{0x8674106cd84f061e, 0x18bf6b9ce732759e}}, {{0xd35d1b9f93d4d913, 0x736877108fb48c44}},
        {{0x9855fa63efc379aa, 0xccecbb09688143ab}}, {{0x012b71de50830afc, 0x543009704d359b10}},
        {{0xdd278fbc2700d75a, 0x96449c3199810c93}}, {{0x70dd8b4691b50108, 0xa2a50680daaa23e5}},
        {{0xed72e6c50768f159, 0x5df4eb6910e01ea8}}, {{0x0000000000000002, 0x0000000000000002}},
        {{0x0000000000000004, 0x0000000000000004}}, {{0x0000000000000010, 0x0000000000000010}},
    },
    {
        {{0xdbf5494c43ddaaf1, 0x8dfdc20ea7768ed9}}, {{0x55cbed9c770c4656, 0x33c13e5b26a05710}},
        {{0x58f9b788ed7d6d01, 0xb1381762c8ca0130}}, {{0xb2d2b3f6bf02d641, 0x9851525dc8d339f3}},
        {{0x5233599488bd9d72, 0x9f8a471495d3f5bf}}, {{0x0a29a22dcd97f4c0, 0x4de845b2f100bb63}},
        {{0x33aefe6633aa7153, 0x5304d39f440d5ccc}}, {{0x25b03253d7ae4233, 0x7789a311b90c9e51}},
        {{0x39f6c8a28ec73749, 0x2e0b2ce8444ec6bd}}, {{0xfd5e9b3b520d77e6, 0x205766736444c2df}},
        {{0x6be5c74046e56b00, 0x909c29968e37b229}}, {{0x705553b243a37135, 0x9860826c4bae90da}},
        {{0x0e7d89259ad6b8fe, 0xa91c29cddf1f3716}}, {{0x86499da28227f300, 0xfa9884925f32e43e}},
        {{0x10e90c5c76c6707b, 0xbf20d47121f594c0}}, {{0x584453d9ab5869f6, 0x9836872abf18815f}},
        {{0xb9a0774541360979, 0x342d8e292bc8619c}}, {{0xe9737ac69357c059, 0xa555ef2ef3639e25}},
        {{0x66454306bbfd4ec7, 0x68716080ef043129}}, {{0x40fa5a0825715851, 0xffe362ca63d7fcdb}},
        {{0x5bf07ed9c2bdfffb, 0x18f954f60bf4f05d}}, {{0xe98f0091f5700666, 0xb51a971bbc593358}},
        {{0xd863ca8f47ca02a9, 0xc268904fe87712da}}, {{0xeda7bf9f0cded691, 0xed832cd338b5d1ba}},
        {{0xd22240f726a46144, 0xc9e959b88030f3f2}}, {{0x264d746a7fe6693a, 0x96d644f016ede31c}},
        {{0x3ea0407f62fd8cb6, 0x9d6f9aae02d6f98f}}, {{0xdff93c4320cfd0d2, 0x662883890b51203a}},
        {{0xeef357476f135b3b, 0x5a84e3a80dbc4b51}}, {{0x2a73adf4b0523c7e, 0x6bf1020bd7c66d53}},
        {{0xa6828fac15311cc8, 0xb2fb11cecb248e40}}, {{0x05944191336fc0be, 0x530461b016d1291e}},
        {{0x1414b6d4e276218d, 0x6c4eaa17735dbd8d}}, {{0xe3bc9b27ec5f94c3, 0x5d0f446b3b8a6a94}},
        {{0xac6ea789265954f5, 0xf2b4a8316764770a}}, {{0x1779219c628b16d7, 0x9eb54ca43c66ffd1}},
        {{0x59284a967db72d95, 0xc61b091b69e0c900}}, {{0xe40db9804dee4726, 0x3441f3c95eafe424}},
        {{0x9722e2b694487a95, 0x576a38183f35b321}}, {{0xfba2023acfab6b74, 0x4f5ca71865845f03}},
        {{0xd1348fbad969bd3f, 0x67078d8ab095d97e}}, {{0xb057daaa89873f57, 0x9bde18facf82d3ba}},
        {{0xa32ecb48c296037a, 0xace0327bb3e141e2}}, {{0x16cf2dea496f3632, 0x1dfa4d3894fcb107}},
        {{0x9a2536beddd2bd22, 0xa40f7bc5994004a5}}, {{0xad83aceeda423dc9, 0x6c52f3b4beb8cf19}},
        {{0xda357ea8d73d335a, 0xc3591b9d854f531b}}, {{0xc84aedecadab4cde, 0x7a5138118110cd61}},
        {{0x0b0fffbe80e7e3c6, 0xce0e22382605b631}}, {{0x84d444b59b3e8607, 0x3556c6b811369592}},
        {{0xe416518c0ecc233c, 0x695ab96c44fe44b7}}, {{0x6280fbbfecafd694, 0x8a9df0895d28d741}},
        {{0xf98c7032c7aa3f7f, 0xcb992f09047dbd1c}}, {{0x7a250c26ca38c31d, 0xeaa0f3e8e77f8e16}},
        {{0xa8ca4831c2e725ba, 0x6976b34d37740ab0}}, {{0x222b624f10913abd, 0x2f3853d2f6709da5}},
        {{0x8de249c0de7ef77d, 0x497fdb5e5539dcf0}}, {{0x2caf90ab5d6583cf, 0xdae07c619f3ece2d}},
        {{0xb86b187b9f1fbeb7, 0x146a53f9e0a4b94f}}, {{0x1698e21eb163b512, 0x4fac3b4fc98adbdc}},
        {{0xc3bd80517a6a1c1a, 0x2efa75b488700f54}}, {{0xb504f333f9de64b6, 0xddb3d742c26553a9}},
        {{0x5a827999fcef325b, 0xb36a3ce3a357fa7d}}, {{0xf92614cc7a0a9a7b, 0x9fb0b3db4b8204e2}},
    },
};

fy_pair_t fy_digest_power(const fy_digest_way_t *way, uint64_t bytes, bool back) {
    fy_pair_t product = {{1, 1}};
    bool one = true; /* most steps are a power of two or few of them */
    for (; bytes != 0; bytes &= bytes - 1) {
        fy_pair_t power = powers[back ? 1 : 0][__builtin_ctzll(bytes)];
        product = one ? power : way->multiply(product, power);
        one = false;
    }
    return product;
}

/* ---- the choice ---- */

const fy_digest_way_t *const fy_digest_ways[] = {
    &fy_digest_plain,
#if defined(__x86_64__)
    &fy_digest_pclmul,
    &fy_digest_vpclmul,
#endif
    NULL,
};

static _Atomic(const fy_digest_way_t *) chosen;

void fy_digest_force(const fy_digest_way_t *way) {
    atomic_store_explicit(&chosen, way, memory_order_relaxed);
}

/* The ways stand in the order of the kernels' instruction sets. A wrong FERRY_ISA is for those to
 * complain about who can; all ways give the same bits. */
static const fy_digest_way_t *choose(void) {
    const fy_kernels_t *kernels = NULL;
    bool plain = fy_kernels_get(&kernels, NULL) == FERRY_OK && strcmp(kernels->name, "plain") == 0;
    bool narrow = kernels != NULL && strcmp(kernels->name, "avx512") != 0;
    const fy_digest_way_t *best = fy_digest_ways[0];
    size_t most = plain ? 1 : narrow ? 2 : 3;
    for (size_t i = 0; i < most && fy_digest_ways[i] != NULL; i++) {
        best = fy_digest_ways[i]->runs() ? fy_digest_ways[i] : best;
    }
    return best;
}

/* Threads that come first at once make the same choice, so a relaxed store is enough. */
const fy_digest_way_t *fy_digest_way(void) {
    const fy_digest_way_t *way = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (way == NULL) {
        way = choose();
        fy_digest_force(way);
    }
    return way;
}
